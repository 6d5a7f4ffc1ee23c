"""The one step loop: sequences, plans, memory, policies, executors."""
