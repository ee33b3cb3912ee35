"""What stands in the file of a report: the answers that its page shows."""

import json
from typing import Any


def read_answers(page: str) -> dict[str, Any]:
    """By what the page asks, the answer."""
    held = page.partition('<script type="application/json" id="answers">')[2].partition("</script>")[0]
    return dict(json.loads(held)["answers"])
