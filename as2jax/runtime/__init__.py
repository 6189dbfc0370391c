"""What every other folder builds on: errors, names, devices, processes and files."""
