"""The toy corpus: hand-checked French for each phenomenon, and properties of what is sampled."""

import re
import subprocess
import sys

import toy_corpus
from toy_corpus import (
    be_clause,
    clause,
    main,
    noun_phrase,
    pronoun_for,
    relative_phrase,
    toy_pairs,
    write_out,
)
from toy_lexicon import ADJECTIVE, NOUN, OBJECTS, SUBJECTS, VERBS, Phrase, words


def phrase(noun: str, determiner: str | Phrase = "the", *adjectives: str, plural: bool = False) -> Phrase:
    return noun_phrase(NOUN[noun], determiner, [ADJECTIVE[adjective] for adjective in adjectives], plural)


def verb(name: str, group: str = "TRANSITIVE"):
    return VERBS[group][name]


def gap(head: Phrase) -> Phrase:
    """The subject of a relative clause."""
    return Phrase(person=head.person, plural=head.plural, feminine=head.feminine)


def go(complement: Phrase, name: str = "go") -> list:
    mover = verb(name, "MOVING")
    return [mover, words(*mover.prepositions) + complement]


SPEAKER, YOU, HE, SHE, WE, THEY = SUBJECTS.values()
GIRL, GIRLS, MEN = phrase("girl"), phrase("girl", plural=True), phrase("man", plural=True)
ANNE = Phrase(("Anne",), ("Anne",), feminine=True)


def check(cases, question=False):
    """All of (what is written out, English, French)."""
    written = [write_out(given, question) for given, _, _ in cases]
    assert written == [(english, french) for _, english, french in cases]


NOUN_PHRASES = [
    # gender, number, plurals
    (phrase("house"), "The house.", "La maison."),
    (phrase("horse", plural=True), "The horses.", "Les chevaux."),
    (phrase("story", "two", plural=True), "Two stories.", "Deux histoires."),
    (phrase("mouse", "a", plural=True), "Some mice.", "Des souris."),
    (phrase("hospital", "our", plural=True), "Our hospitals.", "Nos hôpitaux."),
    (phrase("jewel", plural=True), "The jewels.", "Les bijoux."),
    # adjectives: agreement and place
    (phrase("house", "a", "white"), "A white house.", "Une maison blanche."),
    (phrase("house", "a", "small", "red"), "A small red house.", "Une petite maison rouge."),
    (phrase("actress", "the", "jealous", plural=True), "The jealous actresses.", "Les actrices jalouses."),
    (phrase("newspaper", "the", "boring", plural=True), "The boring newspapers.", "Les journaux ennuyeux."),
    (phrase("dress", "a", "blue", plural=True), "Some blue dresses.", "Des robes bleues."),
    (phrase("dog", "a", "big", plural=True), "Some big dogs.", "De grands chiens."),
    # before a vowel
    (phrase("friend", "a", "old"), "An old friend.", "Un vieil ami."),
    (phrase("bird", "this", "beautiful"), "This beautiful bird.", "Ce bel oiseau."),
    (phrase("hotel", "the", "new"), "The new hotel.", "Le nouvel hôtel."),
    (phrase("hotel", "the", "new", plural=True), "The new hotels.", "Les nouveaux hôtels."),
    (phrase("church", "a", "old"), "An old church.", "Une vieille église."),
    (phrase("owl", "a", "old"), "An old owl.", "Un vieux hibou."),
    # determiners
    (phrase("child"), "The child.", "L'enfant."),
    (phrase("owl"), "The owl.", "Le hibou."),
    (phrase("man", "this"), "This man.", "Cet homme."),
    (phrase("woman", "this"), "This woman.", "Cette femme."),
    (phrase("school", "my"), "My school.", "Mon école."),
    (phrase("school", "my", "new"), "My new school.", "Ma nouvelle école."),
    (phrase("sister", "his", plural=True), "His sisters.", "Ses sœurs."),
    (phrase("bread", "a"), "Some bread.", "Du pain."),
    (phrase("water", "a"), "Some water.", "De l'eau."),
    (phrase("soup", "a", "hot"), "Some hot soup.", "De la soupe chaude."),
    # whose
    (phrase("brother", phrase("king")), "The king's brother.", "Le frère du roi."),
    (phrase("dog", GIRLS), "The girls' dog.", "Le chien des filles."),
    (phrase("school", phrase("child", plural=True)), "The children's school.", "L'école des enfants."),
    (phrase("cat", ANNE, "black"), "Anne's black cat.", "Le chat noir d'Anne."),
    (phrase("friend", phrase("uncle", "a")), "An uncle's friend.", "L'ami d'un oncle."),
]


def test_noun_phrases():
    check(NOUN_PHRASES)


STATEMENTS = [
    # person and number
    (clause(SPEAKER, verb("help"), MEN), "I help the men.", "J'aide les hommes."),
    (clause(WE, verb("eat"), phrase("bread")), "We eat the bread.", "Nous mangeons le pain."),
    (clause(YOU, verb("see"), GIRL), "You see the girl.", "Vous voyez la fille."),
    (clause(GIRL, verb("wash"), phrase("cat")), "The girl washes the cat.", "La fille lave le chat."),
    (clause(MEN, verb("drink"), phrase("milk", "a")), "The men drink some milk.", "Les hommes boivent du lait."),
    # negation
    (
        clause(SPEAKER, verb("eat"), phrase("soup"), negation="not"),
        "I do not eat the soup.",
        "Je ne mange pas la soupe.",
    ),
    (
        clause(GIRL, verb("buy"), phrase("apple", "any", plural=True), negation="not"),
        "The girl does not buy any apples.",
        "La fille n'achète pas de pommes.",
    ),
    (
        clause(HE, verb("drink"), phrase("water", "any"), negation="never", tense="past"),
        "He never drank any water.",
        "Il n'a jamais bu d'eau.",
    ),
    (
        clause(WE, verb("sleep", "INTRANSITIVE"), negation="not", tense="future"),
        "We are not going to sleep.",
        "Nous n'allons pas dormir.",
    ),
    (
        clause(SPEAKER, verb("need", "RELATING"), words("", "de") + phrase("ladder"), negation="not"),
        "I do not need the ladder.",
        "Je n'ai pas besoin de l'échelle.",
    ),
    # contraction and elision
    (clause(SPEAKER, *go(phrase("market"))), "I go to the market.", "Je vais au marché."),
    (clause(SPEAKER, *go(phrase("school"))), "I go to the school.", "Je vais à l'école."),
    (
        clause(HE, verb("talk", "RELATING"), words("to", "à") + MEN),
        "He talks to the men.",
        "Il parle aux hommes.",
    ),
    (clause(SHE, *go(phrase("lake"), "come back")), "She comes back from the lake.", "Elle revient du lac."),
    (
        clause(SHE, verb("run", "INTRANSITIVE"), words("near", "près de") + phrase("hotel")),
        "She runs near the hotel.",
        "Elle court près de l'hôtel.",
    ),
    # compound past
    (
        clause(GIRLS, *go(phrase("park")), tense="past"),
        "The girls went to the park.",
        "Les filles sont allées au parc.",
    ),
    (
        clause(SHE, *go(phrase("house"), "stay"), tense="past"),
        "She stayed in the house.",
        "Elle est restée dans la maison.",
    ),
    (
        clause(THEY, *go(phrase("station"), "leave"), tense="past"),
        "They left for the station.",
        "Ils sont partis pour la gare.",
    ),
    (
        clause(YOU, *go(phrase("tower"), "enter"), tense="past"),
        "You entered the tower.",
        "Vous êtes entré dans la tour.",
    ),
    (
        clause(GIRLS, verb("eat"), phrase("pie", "a"), tense="past"),
        "The girls ate a pie.",
        "Les filles ont mangé une tarte.",
    ),
    # pronouns before the verb
    (clause(SPEAKER, verb("see"), OBJECTS["her"]), "I see her.", "Je la vois."),
    (clause(SPEAKER, verb("see"), OBJECTS["her"], tense="past"), "I saw her.", "Je l'ai vue."),
    (
        clause(SHE, verb("understand"), OBJECTS["them"], tense="past", negation="not"),
        "She did not understand them.",
        "Elle ne les a pas compris.",
    ),
    (
        clause(GIRL, verb("invite"), OBJECTS["us"], tense="past"),
        "The girl invited us.",
        "La fille nous a invités.",
    ),
    (clause(YOU, verb("help"), OBJECTS["me"]), "You help me.", "Vous m'aidez."),
    (
        clause(WE, verb("help"), OBJECTS["him"], tense="future"),
        "We are going to help him.",
        "Nous allons l'aider.",
    ),
    # adverbs
    (
        clause(HE, verb("sing", "INTRANSITIVE"), adverb="often"),
        "He often sings.",
        "Il chante souvent.",
    ),
    # being
    (
        be_clause(GIRLS, ADJECTIVE["happy"], very=True),
        "The girls are very happy.",
        "Les filles sont très heureuses.",
    ),
    (be_clause(SPEAKER, ADJECTIVE["tired"], tense="past"), "I was tired.", "J'étais fatigué."),
    (be_clause(MEN, ADJECTIVE["kind"], negated=True), "The men are not kind.", "Les hommes ne sont pas gentils."),
    (be_clause(ANNE, ADJECTIVE["proud"], negated=True), "Anne is not proud.", "Anne n'est pas fière."),
    # giving
    (
        clause(SHE, verb("give", "GIVING"), phrase("book", "a"), words("to", "à") + phrase("king")),
        "She gives a book to the king.",
        "Elle donne un livre au roi.",
    ),
]


def test_statements():
    check(STATEMENTS)


QUESTIONS = [
    (clause(HE, verb("see"), GIRL, question=True), "Does he see the girl?", "Est-ce qu'il voit la fille ?"),
    (
        clause(GIRLS, verb("see"), MEN, question=True, tense="past"),
        "Did the girls see the men?",
        "Est-ce que les filles ont vu les hommes ?",
    ),
    (
        clause(YOU, verb("see"), ANNE, question=True, tense="future"),
        "Are you going to see Anne?",
        "Est-ce que vous allez voir Anne ?",
    ),
    (
        words("why", "pourquoi") + clause(ANNE, verb("help"), OBJECTS["him"], question=True, negation="not"),
        "Why does Anne not help him?",
        "Pourquoi est-ce qu'Anne ne l'aide pas ?",
    ),
    (be_clause(SHE, ADJECTIVE["tired"], question=True), "Is she tired?", "Est-elle fatiguée ?"),
    (be_clause(YOU, ADJECTIVE["tired"], question=True, tense="past"), "Were you tired?", "Étiez-vous fatigué ?"),
    (
        be_clause(GIRLS, ADJECTIVE["shy"], question=True),
        "Are the girls shy?",
        "Est-ce que les filles sont timides ?",
    ),
]


def test_questions():
    check(QUESTIONS, question=True)


LETTERS = phrase("letter", plural=True)


CLAUSES_IN_CLAUSES = [
    (
        relative_phrase(LETTERS, clause(GIRL, verb("write"), tense="past", antecedent=LETTERS), of_subject=False),
        "The letters that the girl wrote.",
        "Les lettres que la fille a écrites.",
    ),
    (
        relative_phrase(LETTERS, clause(ANNE, verb("hide"), antecedent=LETTERS), of_subject=False),
        "The letters that Anne hides.",
        "Les lettres qu'Anne cache.",
    ),
    (
        relative_phrase(GIRLS, clause(gap(GIRLS), *go(phrase("beach")), tense="past"), of_subject=True),
        "The girls who went to the beach.",
        "Les filles qui sont allées à la plage.",
    ),
    (
        clause(GIRLS, verb("say", "SAYING")) + words("that", "que") + be_clause(pronoun_for(GIRLS), ADJECTIVE["ill"]),
        "The girls say that they are ill.",
        "Les filles disent qu'elles sont malades.",
    ),
    (
        words("if", "si") + be_clause(HE, ADJECTIVE["ill"]),
        "If he is ill.",
        "S'il est malade.",
    ),
    (
        be_clause(phrase("cow"), ADJECTIVE["sad"])
        + words("because", "parce que")
        + clause(pronoun_for(phrase("cow")), *go(phrase("stable"), "stay"), tense="past"),
        "The cow is sad because it stayed in the stable.",
        "La vache est triste parce qu'elle est restée dans l'écurie.",
    ),
]


def test_clauses_in_clauses():
    check(CLAUSES_IN_CLAUSES)


def test_the_seed_decides(tmp_path):
    pairs = toy_pairs(300, seed=1)
    assert pairs == toy_pairs(300, seed=1) == toy_pairs(500, seed=1)[:300]
    assert len(set(pairs) & set(toy_pairs(300, seed=2))) < 30
    command = [sys.executable, toy_corpus.__file__, "--number", "300", "--seed", "1"]
    printed = subprocess.run(command, capture_output=True, check=True, encoding="utf-8").stdout
    assert [tuple(line.split("\t")) for line in printed.splitlines()] == pairs


def test_no_english_sentence_has_two_translations():
    translations: dict[str, str] = {}
    for seed in range(3):
        pairs = toy_pairs(4000, seed)
        assert len({english for english, _ in pairs}) == 4000
        for english, french in pairs:
            assert translations.setdefault(english, french) == french


def test_there_are_many_sentences_of_moderate_length():
    first, second = ({english for english, _ in toy_pairs(20_000, seed)} for seed in (1, 2))
    # two samples of n out of N equally frequent sentences share n² / N; more if some are frequent
    assert len(first) * len(second) / len(first & second) > 1e6
    assert 6 < sum(len(english.split()) for english in first) / len(first) < 12


def test_french_is_elided_contracted_and_spaced():
    french = "\n".join(french for _, french in toy_pairs(20_000, seed=5))
    vowel = "(?!hibou)[aeiouyhàâéêèîôœ]"
    elision = rf"(?<!-)\b(le|la|je|me|ne|de|que|ma|sa|ce|(?:un|le|ce|[mts]on|[nv]otre) (?:beau|nouveau|vieux)) {vowel}"
    assert not re.findall(elision, french, re.IGNORECASE)
    assert not re.findall(r"\b(de|à) les?\b|\bsi ils?\b", french, re.IGNORECASE)
    assert not re.findall(r"  | [.,]|[^ ]\?|' ", french)
    assert all(line[0].isupper() and line[-1] in ".?" for line in french.split("\n"))


def test_the_command_prints_tab_separated_lines(capsys):
    main(["--number", "3", "--seed", "4"])
    assert capsys.readouterr().out == "".join(f"{english}\t{french}\n" for english, french in toy_pairs(3, 4))
