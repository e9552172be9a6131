"""Words of which answers without content are made: openers in many languages, and what stands around them.

Openers such as "Solution" or "Thought process:" draw favourable verdicts from language models although they say
nothing.

Source: Zhao et al. 2025, "One Token to Fool LLM-as-a-Judge", arXiv:2507.08794.
"""

from __future__ import annotations

from roll_verifier_judge.vocabulary import word_set

OPENERS = word_set(
    """
    answer answers solution solutions solve solving resolve explanation explain explaining analysis analyze analyse
    analyzing analysing reasoning thought thoughts think thinking process step steps stepwise result conclusion
    output response reply summary boxed approach begin proceed rationale justification respuesta solución solucion
    resolver resolvamos explicación explicacion análisis analisis razonamiento pensemos resultado conclusión
    pensamiento paso pasos réponse reponse résolvons résoudre explication raisonnement résultat réflexion étape
    étapes pensons réfléchissons lösung loesung antwort erklärung lösen ergebnis gedankengang begründung schritt
    schritte denkprozess überlegung risposta soluzione risolviamo spiegazione ragionamento risultato passo
    passaggio analisi resposta solução explicação raciocínio resolução análise etapa oplossing antwoord uitleg stap
    redenering resultaat svar lösning förklaring steg løsning forklaring trin ratkaisu vastaus selitys ответ
    решение решим объяснение рассуждение результат шаг шагом анализ вывод розв'язання відповідь пояснення odpowiedź
    rozwiązanie wyjaśnienie krok krokiem řešení odpověď vysvětlení çözüm cevap açıklama adım sonuç yanıt giải đáp
    án lời bước bài jawaban solusi penjelasan langkah penyelesaian الحل الإجابة الجواب شرح خطوة بخطوة التفسير
    الاستنتاج उत्तर हल समाधान व्याख्या चरण 해설 풀이 정답 해답 답 답안 설명 답변 단계별로 풀이과정 사고과정 פתרון
    תשובה הסבר λύση απάντηση εξήγηση βήμα
    proof prove qed tackle break assistant proceso processus réflexion réfléchir razonar pensar
    подумаем рассмотрим докажем
    분석 증명
    """
)
"""At least one of these makes an answer of fillers an opener."""

AROUND = word_set(
    """
    a an the final result is are was be will to this that these those it its here there let lets us me we i my our
    you your s ll re ve d m so then therefore thus hence okay ok well alright now sure certainly absolutely course
    of question problem task exercise by about through carefully consider considering down need needs has
    have can could should must going go do find how what which for in on at as with and order given following
    follows below method detail detailed details please work out together one next start looking look understand
    full complete overall initial brief short correct requested provided format la el lo los las es una un vamos
    este esta problema por de del en y que aquí está primero entonces le les est cette ce ces problème par voici
    voilà abord nous allons une des et finale l du die der das ist wir dieses diese für uns hier zuerst zu den dem
    ein eine und lass lasst aufgabe endgültige questo questa il è gli passo dopo per della ecco o os um uma é da em
    het een voor dit deze laten вот это эту задачу задача за давайте мы итоговый финальный итак jest po oto bu adım
    şimdi nihai işte soru là của câu trả lời từng này cuối cùng hãy adalah ini mari kita demi soal akhir هو هي لنحل
    هذه المسألة النهائية السؤال यह है का अंतिम प्रश्न 은 는 이 가 입니다 문제를 문제 풀어 봅시다 최종
    """
)
"""Words that add nothing to an opener."""

WIDE = tuple(
    sorted(
        word_set(
            """
            解 解答 答案 答 答复 回复 回答 解析 分析 思路 思考 过程 過程 思考过程 思考過程 推理 推理过程 步骤 步驟
            解释 解釋 结论 結論 结果 結果 解决 解決 方案 解决方案 最终 最終 最后 最後 首先 让我们 讓我們 我们 我們
            来 來 一步一步 一步步 一步 逐步 地 这个 這個 这道 這道 本题 这 這 问题 問題 题目 題目 题 題 是 为 為
            如下 下面 以下 的 详解 詳解 说明 說明 好的 好 那么 接下来 现在 开始 解题 解題 求解 かいせつ 解説 答え
            こたえ かいとう せつめい 説明 考え方 考え プロセス 手順 ステップ 順番に 順に 考えましょう
            考えてみましょう 解きましょう 解いて いきましょう みましょう 解き では まず この を は です の で に
            最終的 な が と ステップバイステップ 次のように 以下のように 以下の 通り とおり 推論
            理由 证明 證明 由题意得 由題意得 根据题意 根據題意 需要 追って 解くと 考えて みます
            します 証明 分析する 解く 方法
            """
        ),
        key=lambda word: (-len(word), word),
    )
)
"""Fillers of languages written without blanks, the longest first."""
