"""What people look at: pure functions from recorded facts to text."""
