"""Physics: closed forms and limits; pure functions, no I/O, no third-party imports."""
