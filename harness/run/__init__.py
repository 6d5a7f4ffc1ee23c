"""One run, from its options to its last line: rounds, workers, interrupts, progress."""
