"""Whether the engines of a run gave the same answers, and who is at fault where they did not."""
