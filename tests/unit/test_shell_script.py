"""Shell scripts followed without running them. What the shell does with the same lines is what is expected."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from omniloom.errors import ConfigError
from omniloom.train.shell_script import read_script, shown

# Each ends with a command `show` whose words bash is asked for.
SCRIPTS = {
    "quotes": r"""A="x y"; B='$A'; show "$A" $A '$A' "$B" a\ b "q\"q" '' "" e""",
    "lines go on": 'OPTIONS=" \\\n  --a 1 \\\n  --b=2 \\\n"\nshow ${OPTIONS} \\\n  --c',
    "added to": 'E="--a"\nE+=" --b 1"\nif [[ 1 -eq 1 ]]; then E+=" --c"; fi\nshow $E',
    "arrays": "A=(--x 1 'two words')\nA+=(\n  --y 2 # a comment\n)\nshow \"${A[@]}\" end",
    "if": 'D=0\nif [[ $D -eq 1 ]]; then\n V=a\nelif [ "$D" = 0 ]; then\n V=b\nelse V=c\nfi\nshow $V',
    "nested": "A=1\nif [[ $A -eq 1 ]]\nthen\n if [[ -z $NOT_SET ]]; then B=in; else B=out; fi\nfi\nshow $B",
    "both": "A=1\nB=2\nif [[ $A -eq 1 && $B -gt 1 ]] ; then show yes; else show no; fi",
    "either": 'A=1\nif [[ $A -ne 1 || "$A" == 1 ]]; then show yes; fi',
    "not": "A=1\nif [[ ! -n $A ]]; then show yes; else show no; fi",
    "default": 'show ${NOT_SET:-"fall back"} "${NOT_SET:-two words}"',
    "a default that names another": 'B="in x"; show "${NOT_SET:-${B}}" "${NOT_SET:-"$B/x"}" ${NOT_SET:-$B-y}',
    "a default of a default": "show ${NOT_SET:-${NOT_SET:-z}}",
    "a default of nothing": 'show a"${NOT_SET:-}"b ${NOT_SET:-} c',
    "empty and not set": 'A=; show "${A:-x}" "${A-y}" "${NOT_SET-z}"',
    "set by default": ': ${NOT_SET:="v w"}\nshow "$NOT_SET"',
    "needed": "A=1; show ${A:?gone} ${A?gone}",
    "in its place": 'A=1; show "${A:+set}" "${NOT_SET:+set}" end',
    "arithmetic": 'A=4; B=3; show $((A * 2 + $B)) "$(( (A-1)/2 ))" $((7%4)) $((2**3)) x$((${A}-9))y',
    "signs": "show $((-7/2)) $((-7%2)) $((7/-2)) $((-(3)))",
    "text beside": "N=5\nshow name_${N}_end$N --p=${N}/x 'a'\"b\"c",
    "exported": "export A=3 B=4\nshow $A$B",
    "before a command": "A=1 show x",
    "comments": "show a # b\n# show c\n",
    "a hash in a word": "show a#b",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_words_are_those_that_bash_makes(name: str) -> None:
    text = SCRIPTS[name]
    asked = 'show() { printf "%s\\n" "$@"; exit; }\nunset NOT_SET\n' + text
    expected = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True).stdout.split("\n")[:-1]
    commands = read_script(text, environment={}, where="x.sh").commands
    assert [list(command.words[1:]) for command in commands if command.words[0] == "show"][:1] == [expected]


def test_nothing_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "went-off"
    text = f'A=$(touch {mark})\nB=`touch {mark}`\nC=$((1 + 1))\ntouch {mark}\nshow $A/x "$B" $C `pwd`/y'
    script = read_script(text, environment={}, where="x.sh")
    assert not mark.exists()
    words = [shown(word) for word in script.commands[-1].words]
    assert words == ["show", f"<output of touch {mark}>/x", f"<output of touch {mark}>", "2", "./y"]


def test_what_is_not_known_is_told() -> None:
    text = (
        "which srun\nBATCH=$((1-$?))\nif [[ $BATCH -eq 0 ]]; then\n A=interactive\nelse\n A=batch\nfi\n"
        "for i in 1 2; do\n A=loop\ndone\ncase $X in\n a) A=case;;\nesac\nf() {\n A=function\n}\nexit 1\n"
        "show $A $HOME2/d"
    )
    script = read_script(text, environment={}, where="x.sh")
    assert [shown(word) for word in script.commands[-1].words] == ["show", "batch", "<HOME2>/d"]
    told = "\n".join(script.remarks)
    for part in ("line 3: whether", "line 8: for", "line 11: case", "line 14: f()", "line 17: the script would end"):
        assert part in told
    assert "HOME2 is not set; give --env HOME2=VALUE" in told
    given = read_script(text, environment={"HOME2": "/h"}, where="x.sh")
    assert given.commands[-1].words[-1] == "/h/d"


@pytest.mark.parametrize(("text", "message"), [('A="x\n', "line 1"), ("a\nB=(1 2", "line 2"), ("a `b", "line 1")])
def test_what_does_not_end_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"x\.sh, {message}: .* is not closed"):
        read_script(text, environment={}, where="x.sh")
