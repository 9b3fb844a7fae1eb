"""The words of the toy corpus: tables, and what the rules of both languages make of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

# Kinds of nouns: p persons, a animals, t things, r what one buys to read, w what one writes, f what one eats, m food
# and d drinks without number, i places to go to and be inside of, s places to be in, o places to go to and be near to.
# Words whose forms do not tell singular from plural, or present from past, are left out: sheep, read.
NOUNS = {
    "p": """man/men homme m, woman/women femme f, boy garçon m, girl fille f, child/children enfant m,
        teacher professeur m, neighbour voisin m, friend ami m, doctor médecin m, king roi m, queen reine f,
        brother frère m, sister sœur f, mother mère f, father père m, uncle oncle m, aunt tante f, baker boulanger m,
        farmer fermier m, student étudiant m, soldier soldat m, nurse infirmière f, actor acteur m, actress actrice f,
        waiter serveur m, waitress serveuse f, prince prince m, princess princesse f, singer chanteur m,
        writer écrivain m, grandmother grand-mère/grands-mères f, lawyer avocat m, worker ouvrier m, witch sorcière f,
        engineer ingénieur m, sailor marin m""",
    "a": """dog chien m, cat chat m, horse cheval m, bird oiseau m, cow vache f, duck canard m, rabbit lapin m,
        wolf/wolves loup m, mouse/mice souris f, bear ours m, pig cochon m, goat chèvre f, hen poule f,
        owl hibou/hiboux m, eagle aigle m, donkey âne m, squirrel écureuil m, swan cygne m""",
    "t": """table table f, chair chaise f, lamp lampe f, key clé f, hat chapeau m, coat manteau m, shirt chemise f,
        umbrella parapluie m, bag sac m, watch montre f, box boîte f, knife/knives couteau m, bottle bouteille f,
        glass verre m, painting tableau m, clock horloge f, bicycle vélo m, boat bateau m, car voiture f, toy jouet m,
        jewel bijou/bijoux m, ring bague f, tool outil m, mirror miroir m, flower fleur f, dress robe f,
        guitar guitare f, violin violon m, basket panier m, ladder échelle f, gift cadeau m, computer ordinateur m,
        phone téléphone m, stamp timbre m, pillow oreiller m, candle bougie f, rope corde f""",
    "r": "book livre m, newspaper journal m, novel roman m, magazine magazine m, dictionary dictionnaire m",
    "w": """letter lettre f, story histoire f, poem poème m, article article m, message message m, recipe recette f,
        speech discours m, song chanson f""",
    "f": """apple pomme f, orange orange f, egg œuf m, cake gâteau m, pear poire f, carrot carotte f, onion oignon m,
        peach pêche f, cherry cerise f, strawberry fraise f, tomato/tomatoes tomate f, biscuit biscuit m,
        pie tarte f, pancake crêpe f, mushroom champignon m, lemon citron m""",
    "m": """bread pain m, cheese fromage m, soup soupe f, rice riz m, honey miel m, meat viande f, jam confiture f,
        butter beurre m, ham jambon m""",
    "d": "water eau f, milk lait m, coffee café m, tea thé m, juice jus m, wine vin m, beer bière f",
    "i": """house maison f, garden jardin m, school école f, church église f, hotel hôtel m, park parc m,
        castle château m, museum musée m, library bibliothèque f, hospital hôpital m, farm ferme f, theatre théâtre m,
        restaurant restaurant m, shop magasin m, bakery boulangerie f, tower tour f, airport aéroport m,
        factory usine f, bookshop librairie f, stable écurie f, palace palais m, cellar cave f""",
    "s": "street rue f, kitchen cuisine f, forest forêt f, field champ m, village village m, tent tente f",
    "o": "market marché m, station gare f, beach plage f, lake lac m, river rivière f, harbour port m, bridge pont m",
}

# masculine/feminine/masculine before a vowel where the rules do not tell; b: before the noun, a: after it; kinds, with
# l for all places
ADJECTIVES = """
    small petit b patrfl, big grand b atl, old vieux/vieille/vieil b patrwl, new nouveau/nouvelle/nouvel b trwl,
    beautiful beau/belle/bel b patwl, good bon/bonne b rwfmd, bad mauvais b rwfmd, young jeune b pa,
    pretty joli b tl, long long/longue b rw, red rouge a tf, blue bleu a t, green vert a tf, black noir a at,
    white blanc/blanche a atl, yellow jaune a t, grey gris a atl, heavy lourd a t, expensive cher/chère a trfmd,
    empty vide a l, clean propre a tl, dirty sale a atl, broken cassé a t, round rond a t,
    precious précieux/précieuse a tr, happy heureux/heureuse a pa, sad triste a paw, tired fatigué a pa,
    rich riche a p, poor pauvre a p, strong fort a pa, ill malade a pa, intelligent intelligent a pa,
    kind gentil/gentille a p, serious sérieux/sérieuse a pw, curious curieux/curieuse a pa, shy timide a pa,
    famous célèbre a prwl, lazy paresseux/paresseuse a pa, jealous jaloux/jalouse a p, proud fier/fière a p,
    brave courageux/courageuse a pa, calm calme a pal, polite poli a pw, quiet tranquille a l, dark sombre a l,
    modern moderne a tl, cold froid a fmdl, hot chaud a md, fresh frais/fraîche a fm, sweet sucré a d,
    delicious délicieux/délicieuse a fmd, interesting intéressant a prwl, boring ennuyeux/ennuyeuse a prwl,
    funny drôle a prw, strange étrange a patrwl, difficult difficile a rw, short court a w,
    secret secret/secrète a wl, wild sauvage a a, Italian italien/italienne a ptrwfmdl, French français a ptrwfmdl,
    English anglais a ptrwl"""
LAST = (
    "red",
    "blue",
    "green",
    "black",
    "white",
    "yellow",
    "grey",
    "round",
    "modern",
    "wild",
    "Italian",
    "French",
    "English",
)
NOT_GRADED = ("broken", "empty", "wild", "Italian", "French", "English")
# English base and past | French: infinitive, then I, he, we, you, they and the participle where they are not regular |
# kinds of complements and what stands before them; _ joins words
TRANSITIVE = """  kinds of objects
    see saw | voir vois voit voyons voyez voient vu | patio
    eat ate | manger | fm
    buy bought | acheter achète achète achetons achetez achètent acheté | tfmdra
    sell sold | vendre vends vend vendons vendez vendent vendu | tfra
    receive received | recevoir reçois reçoit recevons recevez reçoivent reçu | wt
    copy copied | copier | w
    write wrote | écrire écris écrit écrivons écrivez écrivent écrit | w
    drink drank | boire bois boit buvons buvez boivent bu | d
    find found | trouver | ptrwa
    lose lost | perdre perds perd perdons perdez perdent perdu | ta
    look_for looked_for | chercher | ptrwa
    watch watched | regarder | pa
    hide hid | cacher | trw
    follow followed | suivre suis suit suivons suivez suivent suivi | pa
    help helped | aider | pa
    invite invited | inviter | p
    wait_for waited_for | attendre attends attend attendons attendez attendent attendu | p
    meet met | rencontrer | p
    thank thanked | remercier | p
    prepare prepared | préparer | fm
    paint painted | peindre peins peint peignons peignez peignent peint | tai
    visit visited | visiter | i
    wash washed | laver | at
    draw drew | dessiner | patio
    choose chose | choisir choisis choisit choisissons choisissez choisissent choisi | trwf
    forget forgot | oublier | trw
    understand understood | comprendre comprends comprend comprenons comprenez comprennent compris | pw"""
GIVING = """  kinds of objects; to a person
    give gave | donner | tfra
    show showed | montrer | trwia
    send sent | envoyer envoie envoie envoyons envoyez envoient envoyé | trw
    lend lent | prêter | tr
    offer offered | offrir offre offre offrons offrez offrent offert | tfra
    bring brought | apporter | trf"""
RELATING = """  kinds of objects, and their prepositions
    talk talked | parler | p to à
    think thought | penser | pi of à
    dream dreamt | rêver | pi of de
    need needed | avoir+besoin ai a avons avez ont eu | pt - de
    work worked | travailler | p with avec
    dance danced | danser | p with avec
    play played | jouer | pa with avec
    answer answered | répondre réponds répond répondons répondez répondent répondu | p - à
    phone phoned | téléphoner | p - à"""
INTRANSITIVE = """
    sleep slept | dormir dors dort dormons dormez dorment dormi
    work worked | travailler
    sing sang | chanter
    dance danced | danser
    swim swam | nager
    laugh laughed | rire ris rit rions riez rient ri
    cry cried | pleurer
    run ran | courir cours court courons courez courent couru
    walk walked | marcher
    play played | jouer
    wait waited | attendre attends attend attendons attendez attendent attendu"""
MOVING = """  with être; kinds of places, and their prepositions
    go went | aller vais va allons allez vont allé | io to à
    arrive arrived | arriver | io at à
    return returned | retourner | io to à
    enter entered | entrer | i - dans
    stay stayed | rester | is in dans
    come_back came_back | revenir reviens revient revenons revenez reviennent revenu | io from de
    leave left | partir pars part partons partez partent parti | io for pour
    come_out came_out | sortir sors sort sortons sortez sortent sorti | i of de
    fall fell | tomber | is in dans"""
SAYING = """
    say said | dire dis dit disons dites disent dit
    think thought | penser
    know knew | savoir sais sait savons savez savent su
    believe believed | croire crois croit croyons croyez croient cru
    hope hoped | espérer espère espère espérons espérez espèrent espéré"""
RELATIVES = (
    "brother",
    "sister",
    "mother",
    "father",
    "uncle",
    "aunt",
    "friend",
    "neighbour",
    "teacher",
    "doctor",
    "lawyer",
)
OF_ANIMALS = {"see", "eat", "follow", "watch", "sleep", "run", "swim", "walk", "enter", "fall", "come out", "look for"}

AVOIR = ("ai", "a", "avons", "avez", "ont")
ETRE = ("suis", "est", "sommes", "êtes", "sont")
ETAIT = ("étais", "était", "étions", "étiez", "étaient")
ALLER = ("vais", "va", "allons", "allez", "vont")
POSSESSIVES = {
    "my": ("mon", "ma", "mes"),
    "your": ("votre", "votre", "vos"),
    "his": ("son", "sa", "ses"),
    "her": ("son", "sa", "ses"),
    "our": ("notre", "notre", "nos"),
    "their": ("leur", "leur", "leurs"),
}
NUMBERS = {"two": "deux", "three": "trois", "four": "quatre", "five": "cinq", "seven": "sept", "ten": "dix"}
NAMES = {
    "Paul": "m",
    "Pierre": "m",
    "Arthur": "m",
    "Oscar": "m",
    "Marie": "f",
    "Anne": "f",
    "Emma": "f",
    "Claire": "f",
}
ASPIRATED = ("hibou", "hiboux")  # no elision before these
TIMES = {
    "present": {"every day": "tous les jours", "on Sundays": "le dimanche", "every evening": "tous les soirs"},
    "past": {"yesterday": "hier", "last week": "la semaine dernière", "this morning": "ce matin"},
    "future": {"tomorrow": "demain", "next week": "la semaine prochaine", "this evening": "ce soir"},
}
ADVERBS = {"often": "souvent", "always": "toujours"}
NEGATIONS = {"not": "pas", "never": "jamais"}
PLACES = {"in": "dans", "near": "près de", "in front of": "devant", "behind": "derrière", "next to": "à côté de"}


@dataclass(frozen=True)
class Noun:
    """Singular and plural in both languages."""

    english: tuple[str, str]
    french: tuple[str, str]
    feminine: bool
    kind: str

    @property
    def mass(self) -> bool:
        return self.kind in "md"


@dataclass(frozen=True)
class Adjective:
    """French: masculine, feminine, masculine before a vowel."""

    english: str
    french: tuple[str, str, str]
    before: bool
    kinds: str

    def agreeing(self, feminine: bool, plural: bool) -> str:
        form = self.french[feminine]
        return _french_plural(form) if plural else form


@dataclass(frozen=True)
class Verb:
    """English: base, third person, past. French present: I, he, we, you, they."""

    english: tuple[str, str, str]
    infinitive: str
    present: tuple[str, ...]
    participle: str
    noun: str  # that goes with the verb, such as besoin
    moves: bool  # takes être
    kinds: str
    prepositions: tuple[str, str]


@dataclass(frozen=True)
class Phrase:
    """Words in both languages, and what agrees with them; `clitic`: a French pronoun that stands before the verb."""

    english: tuple[str, ...] = ()
    french: tuple[str, ...] = ()
    person: int = 3
    plural: bool = False
    feminine: bool = False
    kind: str = "p"
    clitic: bool = False

    def __add__(self, other: Phrase) -> Phrase:
        return replace(self, english=self.english + other.english, french=self.french + other.french)

    def with_comma(self) -> Phrase:
        ends = [(*side[:-1], f"{side[-1]},") for side in (self.english, self.french)]
        return replace(self, english=ends[0], french=ends[1])

    @property
    def form(self) -> int:
        """The place of the French verb's form."""
        return {(1, False): 0, (3, False): 1, (1, True): 2, (2, False): 3, (3, True): 4}[self.person, self.plural]


def words(english: str, french: str) -> Phrase:
    return Phrase(tuple(english.split()), tuple(french.split()))


# ---- reading the tables


def _english_s(word: str) -> str:
    """The plural of a noun, the third person of a verb."""
    first, *rest = word.split(" ")
    if first.endswith("y") and first[-2] not in "aeiou":
        first = first[:-1] + "ie"
    elif first.endswith(("s", "x", "ch", "sh", "o")):
        first += "e"
    return " ".join([first + "s", *rest])


def _french_plural(word: str) -> str:
    if word.endswith(("s", "x")):
        return word
    if word.endswith("al"):
        return word[:-1] + "ux"
    return word + ("x" if word.endswith("eau") else "s")


def _read_nouns() -> dict[str, Noun]:
    nouns = {}
    for kind, table in NOUNS.items():
        for row in table.split(","):
            english, french, gender = row.split()
            one, _, many = english.partition("/")
            un, _, plusieurs = french.partition("/")
            forms = (one, many or _english_s(one)), (un, plusieurs or _french_plural(un))
            nouns[one] = Noun(*forms, gender == "f", kind)
    return nouns


def _read_adjectives() -> dict[str, Adjective]:
    adjectives = {}
    for row in ADJECTIVES.split(","):
        english, french, place, kinds = row.split()
        masculine, *others = french.split("/")
        feminine = others[0] if others else masculine + ("" if masculine.endswith("e") else "e")
        forms = (masculine, feminine, others[1] if len(others) > 1 else masculine)
        adjectives[english] = Adjective(english, forms, place == "b", kinds.replace("l", "iso"))
    return adjectives


def _read_verbs(table: str, moves: bool = False) -> dict[str, Verb]:
    verbs = {}
    for row in table.splitlines()[1:]:
        english, french, complements = [*row.split("|"), ""][:3]
        base, past = (word.replace("_", " ") for word in english.split())
        infinitive, *forms = french.split()
        infinitive, _, noun = infinitive.partition("+")
        stem = infinitive[:-2]
        if not forms:
            e = "e" if stem.endswith("g") else ""
            forms = [f"{stem}e", f"{stem}e", f"{stem}{e}ons", f"{stem}ez", f"{stem}ent", f"{stem}é"]
        kinds, before, devant = [*complements.split(), "", "", ""][:3]
        prepositions = (before.replace("-", ""), devant)
        english_forms = (base, _english_s(base), past)
        verbs[base] = Verb(english_forms, infinitive, tuple(forms[:5]), forms[5], noun, moves, kinds, prepositions)
    return verbs


NOUN, ADJECTIVE = _read_nouns(), _read_adjectives()
VERBS = {
    "TRANSITIVE": _read_verbs(TRANSITIVE),
    "GIVING": _read_verbs(GIVING),
    "RELATING": _read_verbs(RELATING),
    "INTRANSITIVE": _read_verbs(INTRANSITIVE),
    "MOVING": _read_verbs(MOVING, moves=True),
    "SAYING": _read_verbs(SAYING),
}
SUBJECTS = {
    "I": replace(words("I", "je"), person=1),
    "you": replace(words("you", "vous"), person=2),
    "he": words("he", "il"),
    "she": replace(words("she", "elle"), feminine=True),
    "we": replace(words("we", "nous"), person=1, plural=True),
    "they": replace(words("they", "ils"), plural=True),
}
OBJECTS = {
    "me": replace(words("me", "me"), person=1, clitic=True),
    "you": replace(words("you", "vous"), person=2, clitic=True),
    "him": replace(words("him", "le"), clitic=True),
    "her": replace(words("her", "la"), feminine=True, clitic=True),
    "us": replace(words("us", "nous"), person=1, plural=True, clitic=True),
    "them": replace(words("them", "les"), plural=True, clitic=True),
}


@cache
def nouns_of(kind: str) -> list[str]:
    return [name for name, noun in NOUN.items() if noun.kind == kind]


@cache
def adjectives_of(kind: str) -> list[str]:
    return [name for name, adjective in ADJECTIVE.items() if kind in adjective.kinds]
