"""Parse Python that a model wrote, in any thread."""

import ast
import threading
import warnings
from typing import Literal, overload

ATTEMPTS = 10
_LOCK = threading.RLock()


@overload
def parse_python(source: str, mode: Literal["exec"] = "exec") -> ast.Module: ...
@overload
def parse_python(source: str, mode: Literal["eval"]) -> ast.Expression: ...
def parse_python(source: str, mode: Literal["exec", "eval"] = "exec") -> ast.AST:
    """Return the syntax tree of some Python code. Raises ValueError if it cannot be parsed, and never warns.

    Python 3.11 raises a SystemError if another thread parses at the same time (python/cpython#106905). The lock
    serialises calls of this function. If another library parses meanwhile, this function tries again.
    """
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as warnings of invalid escapes in strings
        for _ in range(ATTEMPTS):
            try:
                return ast.parse(source, mode=mode)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                raise ValueError(f"this is no Python: {error}") from None
            except SystemError:
                continue
    raise ValueError("this Python cannot be parsed now")
