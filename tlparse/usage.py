"""What a user got wrong."""


class Usage(Exception):
    """The command was not understood; the text says why."""
