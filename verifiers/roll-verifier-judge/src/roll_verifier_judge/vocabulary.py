"""The words by which judges name their verdict, in several languages."""

from __future__ import annotations

import re


def word_set(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


STRONG = (
    # English
    "score", "rating", "grade", "judgement", "judgment", "verdict", "final decision",
    # Chinese, Japanese, Korean
    "评分", "得分", "分数", "总分", "打分", "评级", "等级", "判断", "判定", "结论", "裁决", "最终决定", "評分",
    "分數", "總分", "評級", "判斷", "結論", "裁決", "点数", "評価", "スコア", "得点", "採点", "評点",
    "점수", "평점", "평가", "등급", "판정", "결론", "총점",
    # Romance
    "puntuación", "puntuacion", "puntaje", "calificación", "calificacion", "veredicto", "valoración", "pontuação",
    "avaliação", "veredito", "classificação", "jugement", "notation", "punteggio", "valutazione", "giudizio",
    "verdetto", "punctaj",
    # Germanic
    "punktzahl", "gesamtpunktzahl", "bewertung", "gesamtbewertung", "wertung", "urteil", "gesamtnote", "endnote",
    "beoordeling", "oordeel", "cijfer", "poäng", "betyg", "poeng", "karakter",
    # Slavic
    "оценка", "балл", "баллы", "рейтинг", "вердикт", "оцінка", "ocena", "wynik", "werdykt", "hodnocení", "skóre",
    "známka",
    # others
    "puan", "karar", "skor", "penilaian", "điểm", "điểm số", "pisteet", "arvosana", "pontszám", "βαθμολογία", "βαθμός",
    "النتيجة", "الدرجة", "التقييم", "الحكم", "תוצאה", "ציון", "अंक", "स्कोर", "रेटिंग", "निर्णय", "คะแนน",
)  # fmt: skip
"""What follows one of these is the verdict, or there is none."""
WEAK_FOR_NUMBERS = (
    "overall", "total", "overall evaluation", "overall assessment", "points", "mark", "marks", "note", "nota", "voto",
    "punkte", "合计", "総合", "合計", "итог", "nilai",
)  # fmt: skip
WEAK_FOR_LABELS = (
    "answer", "final answer", "decision", "conclusion", "result", "outcome", "choice", "winner", "preference", "label",
    "classification", "evaluation", "assessment", "overall", "correct", "correctness", "entscheidung", "ergebnis",
    "décision", "évaluation", "decisión", "evaluación", "decisão", "decisione", "решение", "результат", "答案", "结果",
    "結果", "回答",
)  # fmt: skip
"""Words that often mean something else: they count behind a colon, alone, where no strong word stands."""

SEPARATORS = r"is|ist|est|es|é|è|jest|это|является|equals"
"""Verbs between the word and its value."""
WIDE_SEPARATORS = r"是|为|為|は"

NEUTRAL = word_set(
    """
    a an the my our your his her its this that final overall total numeric numerical combined aggregate resulting
    given assigned corrected revised updated adjusted new second last complete general global so with and then
    therefore hence thus is as in of give gives gave giving assign assigning award awarding de la le les el los mi
    ma mon su una un une o il lo e notre nuestra minha sua meine mein die der das ein eine finale finaler finales
    endgültige gesamt итоговая итоговый общая финальная моя puntuación nota 最终 最終 总体 總體 综合 整体 总 我的
    该 此 的 最后 给出的 総合 全体 최종 종합 response answer candidate submission text model assistant reply output
    solution student it quality
    """
)
"""Words before (or, after "for", behind) the verdict's name that do not make it one aspect's."""

TAGS = ("score", "rating", "grade", "verdict", "judgement", "judgment", "decision", "label")
"""Tags that hold a verdict, in the order of preference."""
LABEL_TAGS = ("answer", "choice", "winner", "result")
"""Tags that hold a label, after the others."""
MEMBERS = frozenset({*TAGS, *LABEL_TAGS})
"""JSON members that hold a label where the scale names none."""

IS_REFUSAL = re.compile(
    r"\b(?:as an ai|i can(?:no|')t|i cannot|i'm sorry|i am sorry|unable to|i won't|i must decline|i refuse)\b|"
    r"无法|不能评|できません|no puedo|je ne peux pas|ich kann nicht|не могу",
    re.IGNORECASE,
)
"""A judge that declines; only for the record, since no verdict is no verdict."""
