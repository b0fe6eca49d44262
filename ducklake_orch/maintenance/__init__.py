"""Keep a lake in shape: a plan before, the work itself, a report after, and its health at any time."""
