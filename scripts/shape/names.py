"""Names that the rules of CONTRIBUTING.md advise against."""

# Irregular participles and adverbs; regular participles are told by their ending.
_WORDS = """
    again ago alike alone apart aside asked away back before begun behind beside beyond borne
    bought bound broken brought built caught chosen come done drawn driven due else elsewhere
    fallen far felt forgotten found given gone grown heard held here hidden hit kept known laid
    late later least left lent let lost made mean meant met mine more most now once ours over paid
    put read ready risen run said seen sent served set shown shut sold soon spent split spoken
    stood struck sworn taken taught theirs then there thought told took torn twice understood up
    wanted within without won worn written yet yours
"""
# Words that end like a participle and are nouns, verbs or terms of the trade.
_NOUNS = """
    bed deed feed need seed speed thread breed embed shed embedded unread
    before now run set mean read hit put split more due ready late
"""
WORDS, NOUNS = frozenset(_WORDS.split()), frozenset(_NOUNS.split())
PRONOUNS = frozenset({"each", "one", "some", "rest", "own"})


def is_participle(name: str) -> bool:
    """True if the name is only a participle or an adverb: `found`, `wanted`; not `due_ids`."""
    name = name.strip("_")
    if name in NOUNS or "_" in name:
        return False
    return name in WORDS or (len(name) > 4 and name.endswith("ed"))


def is_pronoun(name: str) -> bool:
    """True if the name stands for any thing: `each`, `one`."""
    return name.strip("_") in PRONOUNS


def is_private(name: str) -> bool:
    """True for `_name`, not for `__name__`."""
    return name.startswith("_") and not name.endswith("__")
