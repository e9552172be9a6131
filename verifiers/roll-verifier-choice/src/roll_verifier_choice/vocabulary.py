"""The words and signs around an answer, as regular expressions. All are linear in what they read."""

from __future__ import annotations

import re

LEAD = (
    r"(?:(?:the|la|le|el|il|o|die|das|der|my|final|correct|right|best|(?:option|choice|answer)(?:\s+(?:is|would\s+be|must\s+be))?|letter|alternative|opción|opción|opção|opzione|lettre|"
    r"letra|lettera|buchstabe|вариант|选项|選項|it\s+is|it['’]s|that|to\s+be|definitely|clearly|certainly|probably|"
    r"(?:most\s+)?likely|simply|just|indeed|actually|therefore|thus|hence|so)\b|[\s:：#>*_\"'“‘,-])*?"
)
NOT = re.compile(
    r"\s*(?:n['’]t\b|(?:not|never|neither|nicht|pas|non|não|не)\b|不是|并非|不选|不為|아니)\s*", re.IGNORECASE
)
ALL = re.compile(
    r"\s*(?:(?:both|either|neither|all|none|any|every|each|several|multiple|various)\b|以上|全部|都|两者|均)",
    re.IGNORECASE,
)
OR = r"\bor\b|\boder\b|\bou\b|\bили\b|[/|]|或|또는|または"
AND = r"\band\b|\bund\b|\bet\b|\by\b|\bи\b|[,;&+、，；]|和|及|と"
FILLER = r"(?:\s*\b(?:also|maybe|perhaps|possibly|probably|even|either|both|option|choice|answer|the|then|and|or)\b)*"
TERMINAL = r"(?=\s*(?:$|[)\]}.,;:!?/&|+。，；、\n]|and\b|or\b|are\b|both\b|both$|together\b))"
END = re.compile(r"\s*(?:$|\}|[.!;。！；]+(?=\s|$|[\"'”’)}\]])|\n|[。！；])")
DELIMITER = re.compile(r"\s*(?:[.:：]|[-–—]+(?=\s)|[,，(（]|->|→)\s*")
CONNECTIVE = re.compile(
    r"\s*(?:because|since|as|for|which|with|due|given|according|based|by|from|in|on|where|so|thus|therefore|hence|not|"
    r"rather|instead|but|and|while|whereas|is|was|would|seems|parce|car|porque|weil|denn|perché|потому|因为|因為|です|입니다|"
    r"이다|だ|是|。)",
    re.IGNORECASE,
)
REASON = re.compile(
    r"\s*(?:because|since|as|for|due|given|so|parce|car|porque|weil|denn|perché|потому|因为|因為|です|입니다|이다|。|"
    r"(?:is|would\s+be)\s+(?:the\s+)?(?:most\s+)?(?:correct|right|best)\b)",
    re.IGNORECASE,
)
BUT = re.compile(r"\W*(?:but|rather|instead|sondern|mais|sino|而是)\W+(?:rather\s+)?", re.IGNORECASE)
SEGMENT_END = re.compile(r"\n|[.!?。](?=\s|$)|[,;]?\s+(?:because|since|as|so|which)\b|[;。]", re.IGNORECASE)
LABEL_BEHIND = r"(?P<text>[^\n]{{1,200}}?)\s*[(\[]\s*(?P<label>{label})\s*[)\]]\W*"
OTHER = re.compile(r"(?<![\w(\[])[(\[]?([A-Z]|\d{1,2})[)\]]")
UNSURE = re.compile(r"\b(?:not|or|and|either|neither|both)\b", re.IGNORECASE)
