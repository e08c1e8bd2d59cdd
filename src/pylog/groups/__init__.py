"""Consumer groups: who belongs to them, what they have committed, and what an administrator may do with them."""
