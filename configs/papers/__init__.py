"""The five papers (`tables`, with published figures: `lab paper`) and our rows (`measured`: `lab measured`)."""
