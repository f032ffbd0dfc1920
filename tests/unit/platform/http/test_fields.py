import re
import unicodedata

import pytest
from pydantic import TypeAdapter, ValidationError

from sandyard.platform.http.fields import VISIBLE, Name

JOINERS = "\u200c\u200d"


def test_a_name_has_no_control_or_format_characters_but_joiners() -> None:
    for character in map(chr, range(0xD800)):
        unseen = unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp")
        allowed = re.match(VISIBLE, f"a{character}b") is not None
        assert allowed == (not unseen or character in JOINERS), hex(ord(character))


@pytest.mark.parametrize("name", ["a\u202eb", "\u200b", "a\u2066b", "\ufeffa", "a\ud800"])
def test_an_invisible_name_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Name).validate_python(name)


@pytest.mark.parametrize(
    "name", ["My page", "Žluťoučký kůň", "\U0001f469\u200d\U0001f4bb", "نی\u200cلی"]
)
def test_a_name_in_any_script_is_allowed(name: str) -> None:
    assert TypeAdapter(Name).validate_python(name) == name
