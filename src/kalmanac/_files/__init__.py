"""Files that survive a crash, and are not trusted when they are read."""
