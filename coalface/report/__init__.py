"""What a run came to: tables, figures, one page, and live progress."""
