"""First process of a session sandbox (placeholder replaced below)."""
