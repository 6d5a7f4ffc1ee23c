"""How far the comparison's answers can be relied on: false alarms and power, simulated and real."""
