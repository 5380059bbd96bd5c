"""Many runs from one command: in processes of this machine, or on a Ray cluster."""
