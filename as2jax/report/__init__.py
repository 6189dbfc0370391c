"""One self-contained HTML page that shows runs, with its figures and tables."""
