"""Report on a lake in one HTML page that needs no network: its contents, its health and its history."""
