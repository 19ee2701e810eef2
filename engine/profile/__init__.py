"""Where a token's time goes: its records, the instruments behind them, and what is concluded from them."""
