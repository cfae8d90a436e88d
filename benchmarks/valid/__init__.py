"""What ``win_on: valid`` gives and costs where some tool calls are broken."""
