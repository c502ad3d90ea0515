"""Links that leave docs/ lead to the repository. A comment above the title is left out."""
import posixpath
import re

REPOSITORY = "https://github.com/ormoutbox/ormoutbox/blob/main/"


def on_page_markdown(markdown, page, **_):
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def lead(match):
        target = match.group(1)
        if "://" in target or target.startswith("#"):
            return match.group(0)
        path = posixpath.normpath(posixpath.join(folder, target))
        return match.group(0) if path.startswith("docs/") else "](" + REPOSITORY + path + ")"

    markdown = re.sub(r"\A<!--.*?-->\n", "", markdown)
    return re.sub(r"\]\(([^)\s]+)\)", lead, markdown)
