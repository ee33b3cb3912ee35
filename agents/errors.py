"""What cannot be used, told in one line for the user; here, since who catches it need not load who raises it."""


class ChatError(Exception):
    """A tokenizer that no chat frame can be made from: one line which says why and how to fix it."""


class RoleError(Exception):
    """A role that cannot be used; its text is one line that says which, where and why."""
