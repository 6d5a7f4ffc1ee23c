"""What serves requests: engines, the one step loop, its policies, memory and executors."""
