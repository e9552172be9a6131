"""The eight readings of a response that loose mode tries."""

from __future__ import annotations


def loose_variants(text: str) -> list[str]:
    """The response as it is, without its first line, its last line, both; and each of them without asterisks.

    Introductions ("Sure, here it is:"), closing remarks and emphasis do not break an instruction then. The official
    eight, in the official order; blank and repeated ones are left out.

    Source: Zhou et al. 2023, arXiv:2311.07911, section 3.
    """
    lines = text.split("\n")
    cut = [text, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    every = [cut[0], cut[0].replace("*", ""), *cut[1:], *(part.replace("*", "") for part in cut[1:])]
    return [variant for variant in dict.fromkeys(every) if variant.strip()]
