"""The letter in an answer to MMMU-Pro (Yue et al. 2024), by the rule of its own program, which is not MMMU's."""

from __future__ import annotations

from collections.abc import Mapping

from omniloom.evaluate.scores.choices import ENDS, LONG_WORDS, Fallback, guessed_letter

_MARK = "Answer:"


def mmmu_pro_choice(
    response: str, options: Mapping[str, str], *, fallback: Fallback = "none", item: str = ""
) -> str | None:
    """The letter that its program finds.

    It looks behind the last "Answer:" for the one letter of an option that stands there; else for "(A)", else for
    "A ", else for "A.", else, in long answers, for the text of an option; of several it takes the one said last, where
    for "A " and "A." only those that stand alone have a place, and the first option wins where none has.

    Args:
        response: what the model said.
        options: text of each option by its letter.
        fallback: where there is none, as for `omniloom.evaluate.scores.choices.mmmu_choice`.
        item: name of the item, for the fallback ``random``.
    """
    _, marked, after = response.rpartition(_MARK)
    named = [letter for letter in options if letter in after] if marked else []
    if len(named) == 1:
        return named[0]
    for character in ENDS:
        response = response.strip(character)
    text = f" {response} "
    for form, place in (("({})", "({})"), ("{} ", " {} "), ("{}.", " {} ")):
        found = [letter for letter in options if form.format(letter) in text]
        if found:
            return max(found, key=lambda letter: text.rfind(place.format(letter)))
    if len(text.split()) > LONG_WORDS:
        lowered = text.lower()
        found = [letter for letter, option in options.items() if option.lower() in lowered]
        if found:
            return max(found, key=lambda letter: lowered.rfind(options[letter].lower()))
    return guessed_letter(options, fallback, item=item)
