"""English-French sentence pairs of a small grammar, for tests and examples.

    python recipes/toy/toy_corpus.py --number 1000 --seed 1 > toy.tsv

The French agrees in gender, number and person, elides and contracts; adjectives stand where they belong. An English
sentence has always the same translation: who speaks or is spoken to is a man, `you` is polite and means one person,
`they` are men or both unless the sentence says otherwise.
"""

from __future__ import annotations

import argparse
import random
import unicodedata
from collections.abc import Sequence
from dataclasses import replace

import toy_lexicon as lexicon
from toy_lexicon import (
    ADJECTIVE,
    ADVERBS,
    NEGATIONS,
    NOUN,
    SUBJECTS,
    Adjective,
    Noun,
    Phrase,
    Verb,
    adjectives_of,
    nouns_of,
    words,
)

TENSES = ("present", "past", "future")
ELIDED = ("le", "la", "je", "me", "ne", "de", "que")
CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}


def toy_pairs(number: int, seed: int) -> list[tuple[str, str]]:
    """Pairs of an English and a French sentence; no English sentence comes twice.

    The same seed gives the same pairs, whatever the number. There are many millions of sentences.
    """
    sampler = _Sampler(seed)
    pairs: dict[str, str] = {}
    while len(pairs) < number:
        english, french = sampler.sentence()
        pairs.setdefault(english, french)
    return list(pairs.items())


# ---- grammar: what words to take is given


def noun_phrase(
    noun: Noun, determiner: str | Phrase = "the", adjectives: Sequence[Adjective] = (), plural: bool = False
) -> Phrase:
    """`determiner`: the, a, any, this, a possessive or a number in English; or a phrase, whose the noun is."""
    front = [adjective for adjective in adjectives if adjective.before]
    behind = [adjective for adjective in adjectives if not adjective.before]
    english = (*(adjective.english for adjective in front + behind), noun.english[plural])
    french = [noun.french[plural]]
    for adjective in reversed(front):
        before_vowel = not (noun.feminine or plural) and _starts_with_vowel(french[0])
        form = adjective.french[2] if before_vowel else adjective.agreeing(noun.feminine, plural)
        french.insert(0, form)
    french += [adjective.agreeing(noun.feminine, plural) for adjective in behind]
    phrase = Phrase(english, tuple(french), plural=plural, feminine=noun.feminine, kind=noun.kind)
    if isinstance(determiner, Phrase):
        owned = _article(phrase, "the").french + phrase.french + ("de", *determiner.french)
        return replace(phrase, english=_genitive(determiner) + english, french=owned)
    article = _article(phrase, determiner, noun.mass, bool(front))
    return replace(phrase, english=article.english + english, french=article.french + phrase.french)


def _article(phrase: Phrase, determiner: str, mass: bool = False, adjective_first: bool = False) -> Phrase:
    """The determiner of a phrase that has none yet."""
    choice = 2 if phrase.plural else int(phrase.feminine)
    vowel = _starts_with_vowel(phrase.french[0])
    definite = ("le", "la", "les")[choice]
    if determiner == "the":
        return words("the", definite)
    if determiner == "any":
        return words("any", "de")
    if determiner == "a" and mass:
        return words("some", f"de {definite}")
    if determiner == "a" and phrase.plural:
        return words("some", "de" if adjective_first else "des")
    if determiner == "a":
        return words("an" if phrase.english[0][0] in "aeiouAEIOU" else "a", ("un", "une")[choice])
    if determiner == "this":
        french = "cet" if choice == 0 and vowel else ("ce", "cette", "ces")[choice]
        return words("these" if phrase.plural else "this", french)
    if determiner in lexicon.NUMBERS:
        return words(determiner, lexicon.NUMBERS[determiner])
    forms = lexicon.POSSESSIVES[determiner]
    return words(determiner, forms[0] if choice == 1 and vowel else forms[choice])


def _genitive(owner: Phrase) -> tuple[str, ...]:
    *first, last = owner.english
    return (*first, last + ("'" if owner.plural and last.endswith("s") else "'s"))


def clause(
    subject: Phrase,
    verb: Verb,
    *complements: Phrase,
    tense: str = "present",
    negation: str = "",
    adverb: str = "",
    question: bool = False,
    antecedent: Phrase | None = None,
) -> Phrase:
    """A statement, or a question with `est-ce que`; `antecedent`: the object, where it stands before the clause."""
    front, group = _english_verb(subject, verb, tense, negation, adverb, question)
    clitic = next((phrase for phrase in complements if phrase.clitic), None)
    behind = [phrase for phrase in complements if not phrase.clitic]
    group_french = _french_verb(subject, verb, tense, NEGATIONS.get(negation, ""), adverb, clitic, antecedent)
    return Phrase(
        (*front, *subject.english, *group, *(word for phrase in complements for word in phrase.english)),
        (
            *(("est-ce", "que") if question else ()),
            *subject.french,
            *group_french,
            *(word for phrase in behind for word in phrase.french),
        ),
    )


def _english_verb(
    subject: Phrase, verb: Verb, tense: str, negation: str, adverb: str, question: bool
) -> tuple[list[str], list[str]]:
    """What stands before the subject, and behind it."""
    base, third, past = (form.split() for form in verb.english)
    is_third = subject.person == 3 and not subject.plural
    extra = [word for word in (negation, adverb) if word]
    if tense == "future":
        be = [_be(subject, "present")]
        return (be, [*extra, "going", "to", *base]) if question else ([], [*be, *extra, "going", "to", *base])
    if question or negation == "not":
        do = ["did" if tense == "past" else "does" if is_third else "do"]
        return (do, [*extra, *base]) if question else ([], [*do, *extra, *base])
    return [], [*extra, *(past if tense == "past" else third if is_third else base)]


def _be(subject: Phrase, tense: str) -> str:
    several = subject.plural or subject.person == 2
    if tense == "past":
        return "were" if several else "was"
    return "are" if several else "am" if subject.person == 1 else "is"


def _french_verb(
    subject: Phrase,
    verb: Verb,
    tense: str,
    negation: str,
    adverb: str,
    clitic: Phrase | None,
    antecedent: Phrase | None,
) -> list[str]:
    ne = ["ne"] if negation else []
    extra = [word for word in (negation, ADVERBS.get(adverb)) if word]
    pronoun = list(clitic.french) if clitic else []
    noun = [verb.noun] if verb.noun else []
    if tense == "future":
        return [*ne, lexicon.ALLER[subject.form], *extra, *pronoun, verb.infinitive, *noun]
    if tense == "present":
        return [*ne, *pronoun, verb.present[subject.form], *extra, *noun]
    auxiliary = (lexicon.ETRE if verb.moves else lexicon.AVOIR)[subject.form]
    agrees_with = subject if verb.moves else clitic or antecedent
    return [*ne, *pronoun, auxiliary, *extra, _agreeing(verb.participle, agrees_with), *noun]


def _agreeing(participle: str, phrase: Phrase | None) -> str:
    if phrase is None:
        return participle
    form = participle + ("e" if phrase.feminine else "")
    return form + ("s" if phrase.plural and not form.endswith("s") else "")


def be_clause(
    subject: Phrase,
    adjective: Adjective,
    *,
    tense: str = "present",
    negated: bool = False,
    very: bool = False,
    question: bool = False,
) -> Phrase:
    """What the subject is or was like; questions put a French pronoun behind the verb."""
    be, est = _be(subject, tense), (lexicon.ETAIT if tense == "past" else lexicon.ETRE)[subject.form]
    quality = words("very", "très") if very else Phrase()
    quality += words(adjective.english, adjective.agreeing(subject.feminine, subject.plural))
    if question and subject.english in [pronoun.english for pronoun in SUBJECTS.values()]:
        return words(be, f"{est}-{subject.french[0]}") + replace(quality, english=subject.english + quality.english)
    if question:
        return words(be, "est-ce que") + subject + words("", est) + quality
    return subject + (words(f"{be} not", f"ne {est} pas") if negated else words(be, est)) + quality


def relative_phrase(head: Phrase, inner: Phrase, of_subject: bool) -> Phrase:
    """`head` with a clause that lacks its subject, or else its object."""
    english = "who" if of_subject and head.kind == "p" else "that"
    return head + words(english, "qui" if of_subject else "que") + inner


def pronoun_for(subject: Phrase) -> Phrase:
    """The pronoun that means the same as the subject."""
    if subject.person != 3:
        return subject
    if subject.plural:
        english, french = "they", "elles" if subject.feminine else "ils"
    else:
        french = "elle" if subject.feminine else "il"
        english = "it" if subject.kind == "a" else "she" if subject.feminine else "he"
    return replace(subject, english=(english,), french=(french,))


def write_out(phrase: Phrase, question: bool = False) -> tuple[str, str]:
    """A sentence in both languages."""
    english, french = " ".join(phrase.english), _join_french(phrase.french)
    ends = ("?", " ?") if question else (".", ".")
    return english[0].upper() + english[1:] + ends[0], french[0].upper() + french[1:] + ends[1]


def _join_french(parts: Sequence[str]) -> str:
    """Words with their contractions and elisions."""
    text = ""
    rest = list(parts)
    while rest:
        word, *rest = rest
        elides = len(rest) > 1 and rest[0] == "le" and _starts_with_vowel(rest[1])
        if rest and (word, rest[0]) in CONTRACTED and not elides:
            word = CONTRACTED[word, rest.pop(0)]
        if rest and ((word in ELIDED and _starts_with_vowel(rest[0])) or (word == "si" and rest[0] in ("il", "ils"))):
            text += word[:-1] + "'"
        else:
            text += word + " "
    return text.strip()


def _starts_with_vowel(word: str) -> bool:
    if word in lexicon.ASPIRATED:
        return False
    return unicodedata.normalize("NFD", word)[0].lower() in "aeiouyhœ"


# ---- choosing: which words to take


class _Sampler:
    """Chooses words and constructions at random."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.used: set[str] = set()  # words of the sentence in the making

    def sentence(self) -> tuple[str, str]:
        self.used.clear()
        kind = self.weighted(simple=46, question=17, saying=12, joined=14, conditional=5, there=6)
        return write_out(getattr(self, kind)(), kind == "question")

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def weighted(self, **weights: int) -> str:
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def fresh(self, names: Sequence[str]) -> str:
        """One of the names, if possible one that the sentence does not have yet."""
        name = self.rng.choice([name for name in names if name not in self.used] or list(names))
        self.used.add(name)
        return name

    def noun(self, kinds: str) -> Noun:
        return NOUN[self.fresh(nouns_of(self.rng.choice(kinds)))]

    def adjective(self, kind: str) -> Adjective:
        return ADJECTIVE[self.fresh(adjectives_of(kind))]

    def adjectives(self, kind: str) -> list[Adjective]:
        chosen = [self.adjective(kind)] if self.chance(0.3) else []
        if chosen and chosen[0].before and self.chance(0.3):
            last = [name for name in lexicon.LAST if kind in ADJECTIVE[name].kinds]
            chosen += [ADJECTIVE[self.fresh(last)]] if last else []
        return chosen

    def owner(self) -> Phrase:
        if self.chance(0.5):
            return self.name()
        return noun_phrase(self.noun("p"), plural=self.chance(0.25))

    def name(self) -> Phrase:
        name = self.fresh(list(lexicon.NAMES))
        return replace(words(name, name), feminine=lexicon.NAMES[name] == "f")

    def things(self, kinds: str, negation: str = "", indefinite: int = 30) -> Phrase:
        """A phrase of one of the kinds; `indefinite`: how often, of about 100."""
        choice = self.weighted(the=40, a=indefinite, this=9, possessive=15, genitive=7, number=6)
        owned = choice in ("possessive", "genitive")
        noun = self.noun(kinds)
        if owned and noun.kind == "p":
            noun = NOUN[self.fresh(lexicon.RELATIVES)]
        adjectives = self.adjectives(noun.kind)
        countable = noun.kind not in "mdiso"  # places have a plural, but one goes to one of them
        plural = countable and noun.english[0] not in ("mother", "father") and self.chance(0.3)
        if choice == "a" and negation:
            return noun_phrase(noun, "any", adjectives, plural=countable)
        if choice == "number" and countable:
            return noun_phrase(noun, self.rng.choice(list(lexicon.NUMBERS)), adjectives, plural=True)
        if owned:
            owner = self.rng.choice(list(lexicon.POSSESSIVES)) if choice == "possessive" else self.owner()
            return noun_phrase(noun, owner, adjectives, plural)
        return noun_phrase(noun, choice if choice in ("a", "this") else "the", adjectives, plural)

    def after_preposition(self, kinds: str) -> Phrase:
        """Not an indefinite plural, which would merge with `de`."""
        if kinds[0] == "p" and self.chance(0.25):
            return self.name()
        if self.chance(0.15):
            noun = self.noun(kinds)
            return noun_phrase(noun, "a", self.adjectives(noun.kind))
        return self.things(kinds, indefinite=0)

    def place(self) -> Phrase:
        preposition = self.rng.choice(list(lexicon.PLACES))
        noun = self.noun({"in": "is", "near": "ioo"}.get(preposition, "i"))
        determiner = self.weighted(the=80, a=12, this=8)
        before = words(preposition, lexicon.PLACES[preposition])
        return before + noun_phrase(noun, determiner, self.adjectives(noun.kind))

    def subject(self, indefinite: int = 5) -> Phrase:
        choice = self.weighted(pronoun=28, name=14, person=48, animal=10)
        if choice == "pronoun":
            return self.rng.choice(list(SUBJECTS.values()))
        if choice == "name":
            return self.name()
        return self.things("p" if choice == "person" else "a", indefinite=indefinite)

    def action(self, subject: Phrase, negation: str = "", plain: bool = False) -> tuple[Verb, list[Phrase]]:
        """A verb for the subject, and what follows it; `plain`: no relative clause and no place besides."""
        animal = subject.kind == "a"
        group = self.weighted(
            TRANSITIVE=50, GIVING=0 if animal else 9, RELATING=0 if animal else 13, INTRANSITIVE=12, MOVING=16
        )
        verbs = lexicon.VERBS[group]
        verb = verbs[self.fresh([name for name in verbs if not animal or name in lexicon.OF_ANIMALS])]
        if group == "INTRANSITIVE":
            return verb, [self.place()] if not plain and self.chance(0.7) else []
        if group in ("RELATING", "MOVING"):
            return verb, [words(*verb.prepositions) + self.after_preposition(verb.kinds)]
        complements = [self.object(subject, verb, negation, plain or group == "GIVING")]
        if group == "GIVING":
            complements.append(words("to", "à") + self.after_preposition("p"))
        elif not plain and self.chance(0.2) and verb.kinds[-1] not in "io":
            complements.append(self.place())
        return verb, complements

    def object(self, subject: Phrase, verb: Verb, negation: str, plain: bool) -> Phrase:
        if "p" in verb.kinds and self.chance(0.3):
            others = [p for p in lexicon.OBJECTS.values() if p.person == 3 or p.person != subject.person]
            return self.rng.choice(others)
        if "p" in verb.kinds and self.chance(0.1):
            return self.name()
        phrase = self.things(verb.kinds, negation)
        return phrase if plain else self.described(phrase)

    def described(self, phrase: Phrase) -> Phrase:
        """Now and then with a relative clause."""
        of_somebody = any("'" in word for word in phrase.english)
        if phrase.english[0] != "the" or of_somebody or phrase.kind not in "patrwf" or self.chance(0.75):
            return phrase
        tense = self.weighted(present=50, past=50)
        if phrase.kind in "pa" and self.chance(0.6):
            verb, complements = self.action(phrase, plain=True)
            gap = replace(phrase, english=(), french=())
            return relative_phrase(phrase, clause(gap, verb, *complements, tense=tense), of_subject=True)
        verbs = [name for name, verb in lexicon.VERBS["TRANSITIVE"].items() if phrase.kind in verb.kinds]
        verb = lexicon.VERBS["TRANSITIVE"][self.fresh(verbs)]
        inner = clause(self.person(), verb, tense=tense, antecedent=phrase)
        return relative_phrase(phrase, inner, of_subject=False)

    def person(self) -> Phrase:
        """A short subject."""
        if self.chance(0.6):
            return self.rng.choice(list(SUBJECTS.values())) if self.chance(0.7) else self.name()
        if self.chance(0.6):
            return noun_phrase(self.noun("p"), plural=self.chance(0.3))
        return noun_phrase(NOUN[self.fresh(lexicon.RELATIVES)], self.rng.choice(["my", "your"]))

    def statement(self, subject: Phrase, tense: str, plain: bool = False) -> Phrase:
        """What the subject does or is like."""
        return (
            self.quality(subject, tense)
            if tense != "future" and self.chance(0.22)
            else self.doing(subject, tense, plain)
        )

    def quality(self, subject: Phrase, tense: str, question: bool = False) -> Phrase:
        adjective = self.adjective(subject.kind)
        very = adjective.english not in lexicon.NOT_GRADED and self.chance(0.3)
        negated = not question and self.chance(0.2)
        return be_clause(subject, adjective, tense=tense, negated=negated, very=very, question=question)

    def doing(self, subject: Phrase, tense: str, plain: bool = False) -> Phrase:
        negation = self.rng.choices(["", "not", "never"], [75, 18, 7])[0]
        adverb = self.rng.choice(list(ADVERBS)) if not negation and tense == "present" and self.chance(0.15) else ""
        verb, complements = self.action(subject, negation, plain)
        return clause(subject, verb, *complements, tense=tense, negation=negation, adverb=adverb)

    def simple(self) -> Phrase:
        subject = self.described(self.subject())
        if self.chance(0.18):
            return self.quality(subject, self.rng.choice(TENSES[:2]))
        tense = self.rng.choice(TENSES)
        phrase = self.doing(subject, tense)
        has_room = len(phrase.english) < 10 and not set(phrase.english) & {*ADVERBS, "never"}
        return phrase + self.time(tense) if has_room and self.chance(0.4) else phrase

    def time(self, tense: str) -> Phrase:
        english, french = self.rng.choice(list(lexicon.TIMES[tense].items()))
        return words(english, french)

    def question(self) -> Phrase:
        kind = self.weighted(whether=40, why=18, where=10, when=10, who=10, what=12)
        tense = self.rng.choice(TENSES)
        if kind == "who":
            return self.statement(words("who", "qui"), tense, plain=True)
        if kind == "what":
            subject = self.person()
            verbs = lexicon.VERBS["TRANSITIVE"]
            asked_verb = verbs[self.fresh([name for name, verb in verbs.items() if "p" not in verb.kinds])]
            asked = clause(subject, asked_verb, tense=tense, question=True)
            return words("what", "qu'est-ce") + replace(asked, french=asked.french[1:])
        subject = self.subject(indefinite=0)
        if kind in ("whether", "why") and tense != "future" and self.chance(0.3):
            asked = self.quality(subject, tense, question=True)
            return asked if kind == "whether" else words("why", "pourquoi") + asked
        negation = "not" if kind == "why" and self.chance(0.3) else ""
        verb, complements = self.action(subject, negation, plain=kind != "whether")
        while kind == "where" and verb.moves:  # where to, or where from?
            verb, complements = self.action(subject, negation, plain=True)
        asked = clause(subject, verb, *complements, tense=tense, negation=negation, question=True)
        french = {"whether": "", "why": "pourquoi", "where": "où", "when": "quand"}[kind]
        return words("" if kind == "whether" else kind, french) + asked

    def saying(self) -> Phrase:
        subject = self.person()
        verb = lexicon.VERBS["SAYING"][self.fresh(list(lexicon.VERBS["SAYING"]))]
        return clause(subject, verb) + words("that", "que") + self.second(subject, self.rng.choice(TENSES))

    def second(self, subject: Phrase, tense: str) -> Phrase:
        """A statement about the subject of the sentence, or about another one who is named."""
        other = pronoun_for(subject) if self.chance(0.5) else self.things("p", indefinite=0)
        return self.statement(other, tense, plain=True)

    def joined(self) -> Phrase:
        subject = self.subject()
        conjunctions = {"because": "parce que", "when": "quand", "but": "mais", "and": "et"}
        english, french = self.rng.choice(list(conjunctions.items()))
        tense = self.weighted(present=50, past=50)
        first = self.statement(subject, tense, plain=True)
        if english == "but":
            first = first.with_comma()
        return first + words(english, french) + self.second(subject, tense)

    def conditional(self) -> Phrase:
        subject = self.subject()
        first = words("if", "si") + self.statement(subject, "present", plain=True)
        return first.with_comma() + self.second(subject, "future")

    def there(self) -> Phrase:
        noun = self.noun("patrfmd")
        negated = self.chance(0.2)
        plural = not noun.mass and (negated or self.chance(0.5))
        determiner = "any" if negated else self.weighted(a=70, three=30 if plural else 0)
        be = "are" if plural else "is"
        start = words(f"there {be} not", "il ne y a pas") if negated else words(f"there {be}", "il y a")
        return start + noun_phrase(noun, determiner, self.adjectives(noun.kind), plural) + self.place()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Print English-French sentence pairs, separated by a tab.")
    parser.add_argument("--number", type=int, default=1000, help="how many pairs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="which pairs (default: %(default)s)")
    options = parser.parse_args(arguments)
    for english, french in toy_pairs(options.number, options.seed):
        print(english, french, sep="\t")


if __name__ == "__main__":
    main()
