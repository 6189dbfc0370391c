"""A trained run as a tool: rank, index, export, explain."""
