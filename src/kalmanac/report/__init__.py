"""Pictures, tables and pages from files alone: no agent, no environment and no torch in here."""
