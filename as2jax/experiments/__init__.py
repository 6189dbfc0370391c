"""What a researcher runs beside single runs: sweeps, paper tables, ahead-of-time compilation."""
