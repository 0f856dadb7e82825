"""JSON that a person has written into a form."""

from __future__ import annotations

import json
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from msgplatform.core.json import depth as json_depth

SYNTAX = "syntax"  # the code of the error for what is no JSON at all


def load(text: str, most_levels: int = json_depth.MAX_DEPTH) -> Any:
    """The value. Raises ValidationError, also for what Python reads and nothing else takes."""
    try:
        found = json.loads(text)
        # NaN, 1e999 and half a surrogate pair pass until here; databases and CRMs refuse them.
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except json.JSONDecodeError as error:
        raise ValidationError(
            _("Line %(line)d, column %(column)d: this is not JSON. %(why)s.")
            % {"line": error.lineno, "column": error.colno, "why": error.msg},
            code=SYNTAX,
        ) from None
    except RecursionError:
        raise ValidationError(_("This is nested too deeply.")) from None
    except UnicodeError:
        raise ValidationError(
            _("A text has half a character, such as \\ud800 alone: write whole characters.")
        ) from None
    except ValueError:
        raise ValidationError(
            _("It has a number that cannot be stored: NaN, Infinity, or one that is too large.")
        ) from None
    if json_depth.depth(found) > most_levels:
        raise ValidationError(_("It is nested more than %d levels deep.") % most_levels)
    return found
