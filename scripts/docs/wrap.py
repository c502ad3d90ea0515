#!/usr/bin/env python3
"""Wraps the paragraphs of Markdown pages that have a line of more than 100 columns.

Code, tables and headings stay as they are, and so does a paragraph that is narrow enough. A span of
code and a short link are not broken, so a line with nothing else may be wider.

    scripts/docs/wrap.py PAGE...
"""

import re
import sys

COLUMNS = 100
FENCE = re.compile(r"^\s*```")
WORD = re.compile(r"(?:`[^`]+`|\[[^\]]{1,50}\]\([^)\s]*\)|\S)+")
MARKER = re.compile(r"^([-+*#|>]|\d+[.)]$)")  # a line that begins with it would be something else
ITEM = re.compile(r"^(\s*)([-*] |\d+\. )?")
NEXT = re.compile(r"^\s*([-*+] |\d+\. |```|\||#|$)")


def fill(words, first, later):
    lines, line, empty = [], first, True
    for word in words:
        if not empty and len(line) + 1 + len(word) > COLUMNS and not MARKER.match(word):
            lines.append(line)
            line, empty = later, True
        line += word if empty else " " + word
        empty = False
    return lines + [line]


def wrap(text):
    lines, out, code, i = text.split("\n"), [], False, 0
    while i < len(lines):
        line = lines[i]
        fence = FENCE.match(line)
        code = code != bool(fence)
        i += 1
        if code or fence or len(line) <= COLUMNS or line.lstrip()[0] in "|#":
            out.append(line)
            continue
        indent, mark = ITEM.match(line).groups(default="")
        later = " " * len(indent + mark)
        rest = [line[len(later):]]
        while i < len(lines) and not NEXT.match(lines[i]) and re.match(r"\s*", lines[i]).group() == later:
            rest.append(lines[i].strip())
            i += 1
        out += fill(WORD.findall(" ".join(rest)), indent + mark, later)
    return "\n".join(out)


for page in sys.argv[1:]:
    with open(page, encoding="utf-8") as f:
        before = f.read()
    if (after := wrap(before)) != before:
        with open(page, "w", encoding="utf-8") as f:
            f.write(after)
        print(page)
