"""What arrives: arrivals, lengths, prompts, traces, and the sources that hand them out."""
