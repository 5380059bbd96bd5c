"""The two scans: Kalman filters and linear recurrences, masked and resettable."""
