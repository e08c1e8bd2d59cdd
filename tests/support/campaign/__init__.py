"""The campaign against crashes, faults and damage: `./dev torture`."""
