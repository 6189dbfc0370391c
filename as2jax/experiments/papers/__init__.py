"""The papers' tables, run and set beside their published figures."""
