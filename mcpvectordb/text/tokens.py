"""Words: how text is prepared for FTS5 when it is indexed, which words say nothing, and languages.

FTS5's unicode61 tokenizer makes one token of a run of Chinese, Japanese or Korean (CJK) characters,
and one of parseHTMLDocument. Both are split here: CJK runs into overlapping bigrams, identifiers
into their camelCase parts. Queries are split the same way (`text.query`).

Stop words say nothing of what a text is about. They are left out of queries, not of what is
indexed: question words are rare in many texts, so BM25 takes them for what is asked. Some are words
of another language, as the German `die` is in English; so a text has the stop words of one language
only, the one that has most of its words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

CJK = re.compile(
    "[\u1100-\u11ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff]+"
)
# Vowel signs and other marks, which belong to the letter before them; \w leaves them out. FTS5
# separates words at those of Indic scripts, so such a word is a phrase of its consonants to it.
_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed"
    "\u0900-\u0963\u0966-\u0dff\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ebc\u0ec8-\u0ecd\u0f71-\u0f84"
    "\u102b-\u103e\u17b4-\u17d3"
)
WORD = re.compile(rf"[^\W_](?:[^\W_]|[{_MARKS}])*")
CAMEL = re.compile(r"\b[^\W_]*(?:[a-z0-9][A-Z]|[A-Z]{2}[a-z])[^\W_]*")
_CAMEL_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W_a-zA-Z0-9]+")
_LETTER = re.compile(r"[^\W\d_]")
_LETTERS = 5_000  # of a text are looked at, to know its language
_LEAST = 0.1  # of the different words of prose are stop words of its language

ENGLISH = frozenset(
    """
        a about above after again against all also am an and any are aren't as at be because been
        before being below between both but by can can't cannot could couldn't did didn't do does
        doesn't doing don't down during each either else ever every few for from further get gets
        getting give given gives go goes going got had hadn't has hasn't have haven't having he her
        here hers herself him himself his how however i if in into is isn't it it's its itself just
        let like many may me might more most much must my myself need no nor not of off on once one
        only or other others our ours ourselves out over own per please same shall she should
        shouldn't show since so some such tell than that that's the their theirs them themselves
        then there there's these they this those through thus to too under until up upon us use used
        using very via want was wasn't we well were weren't what what's when where where's whether
        which while who who's whom whose why will with within without won't would wouldn't yet you
        your yours yourself yourselves
    """.split()
)
# Swedish stands for its neighbours, too. The first of two languages wins a tie.
OTHERS: Mapping[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in {
        "de": """
            aber alle allem allen aller alles als also am an ander andere anderen auch auf aus bei
            beim bin bis bist da dabei damit dann das dass daß dazu dem den denn der des dessen die
            dies diese diesem diesen dieser dieses doch dort du durch ein eine einem einen einer
            eines er es etwas euch für gegen gibt hab habe haben hat hatte hier hin hinter ich ihm
            ihn ihnen ihr ihre ihrem ihren ihrer im in ins ist ja jede jedem jeden jeder jedes kann
            kein keine keinen können könnte lässt machen man mehr mein meine meinem meinen meiner
            mich mir mit muss müssen nach nicht nichts noch nun nur ob oder ohne sehr sein seine
            seinem seinen seiner seit sich sie sind so soll sollte sollten sondern sonst über um und
            uns unser unter viel vom von vor wann war waren warum was weil welche welchem welchen
            welcher welches wenn wer werden wie wieder wird wo woher womit woran woraus wurde wurden
            zu zum zur zwischen
        """,
        "es": """
            a al algo alguna algunas alguno algunos ante antes aquel así aun aunque bien cada como
            cómo con contra cual cuál cuáles cuando cuándo cuanta cuánta cuanto cuánto cuántos de
            debe deben del desde dónde donde dos durante e el él ella ellas ellos en entre era es
            esa ese eso esta está están estas este esto estos fue fueron ha haber había han hasta
            hay he la las le les lo los más me mi mientras mis muy nada ni no nos nosotros o os otra
            otras otro otros para pero por porque pues puede pueden puedo que qué quien quién se sea
            según ser si sí sido sin sobre son su sus también tan tanto te tiene tienen tengo toda
            todas todo todos tu tus un una uno unos usted y ya yo
        """,
        "fr": """
            à afin ai ainsi alors après as au aucun aussi autre autres aux avant avec avoir c ça car
            ce cela ces cet cette ceux chaque chez comme comment d dans de depuis des deux doit dois
            donc dont du elle elles en encore entre es est et était été être eu faire fait faut il
            ils j je jusque l la le les leur leurs lors lui m ma mais me même mes moi moins mon n ne
            ni non nos notre nous on ont ou où par parce pas pendant peu peut peuvent plus pour
            pourquoi puis qu quand que quel quelle quelles quels qui quoi s sa sans se sera ses si
            son sont sous sur t ta te tes toi ton tous tout toute toutes très tu un une vers voici
            vos votre vous y
        """,
        "it": """
            a ad agli ai al alla alle allo anche ancora avere c che chi ci come con così cosa cui d
            da dagli dai dal dalla dalle dei del della delle dello dentro deve devono di dopo dove
            due e è ed era essere fa fare fra già gli ha hanno ho i il in io l la le lei li lo loro
            lui ma me mi mio molto ne negli nei nel nella nelle nello no noi non nostro o ogni
            oppure per perché però più poi può quale quali quando quanta quante quanti quanto quella
            quelle quelli quello questa queste questi questo qui se sei senza si sia sono sopra
            sotto sta su sua sue sugli sui sul sulla sulle suo suoi ti tra tu tutti tutto un una uno
            vi voi
        """,
        "pt": """
            a à ainda ao aos as às até cada com como da das de dela dele deles depois do dos e é ela
            elas ele eles em entre era essa esse esta está estão estas este estes eu faz foi foram
            há isso isto já lhe mais mas me mesmo meu meus minha muito na não nas nem no nos nós
            nossa nosso num numa o onde os ou para pela pelas pelo pelos pode podem por porque
            porquê qual quais quando quanto quantos que quê quem se seja sem ser será seu seus só
            sobre são sua suas também te tem têm ter teu todo todos tu tua tudo um uma umas uns você
        """,
        "nl": """
            aan als alle alles ben bij dan dat de der deze die dit door doen dus een eens en er
            geen had heb hebben heeft hem het hier hij hoe hoeveel hun iemand iets ik in is ja je
            kan kunnen maar me meer men met mij mijn moet moeten na naar niet niets nog nu of om
            omdat ons onze ook op over te tegen toch toen tot u uit uw van veel voor waar waarom wat
            wanneer was wel welk welke werd wie wij wil worden wordt zal ze zich zij zijn zo zonder
            zou
        """,
        "sv": """
            alla än andra att av blir de dem den denna deras dess det detta dig din du där efter
            eller en er ett från för ha hade han har henne hon honom hur här hvad hvem hvor i icke
            ikke inte ja jag jeg kan kommer kunde man med mellan men mig min mycket måste när och og
            också om oss på samma sedan sig sin ska skal skulle som så til till under upp ut utan
            vad var varför vem vi vid vilken vilket åt är över af at blev der deres eller et fra
            havde hos hun hvordan hvorfor hvornår mange meget mod nogle når også op os sådan være
            været
        """,
        "pl": """
            a aby ale bardzo bez był była było były być ci co czy dla dlaczego do gdy gdzie go i ich
            ile im ja jak jaka jaki jakie jako je jego jej jest jeszcze już kiedy kto która które
            który ma mnie może można na nad nas nie niż o od on ona one oraz po pod podczas ponieważ
            przed przez przy się są ta tak także tam te tego tej ten to tu tym w we więc wszystko z
            za ze że
        """,
        "tr": """
            acaba ama ancak bana bazı belki ben beni benim bir birçok biri biz bu bunu bunun çok
            çünkü da daha de değil diye en gibi göre hangi hem hep her hiç için ile ise kaç kadar
            ki kim mi mı mu mü nasıl ne neden nerede niçin o olan olarak oldu olduğu olur ona
            onlar onu onun sen siz sonra şey şu tüm var ve veya ya yani zaman
        """,
        "ru": """
            а без более бы был была были было быть в вам вас весь во вот все всё всего всех вы где
            да для до его ее её ему если есть еще ещё же за зачем здесь и из или им их к как какая
            какие какой какое каком каким какую когда кого кому кто ли либо между меня мне можно мой
            мы на над надо нам нас не него нее неё ней нет ни них но ну нужно о об один однако он
            она они оно от очень по под после потому почему при про с сам свой себе себя сколько со
            так такой там тебя тем то тогда того тоже только том тот ты у уже что чего чем чтобы эта
            эти это этой этого этом этот эту я
        """,
        "uk": """
            або але бо був була були було бути в вам вас ви від вона вони воно все всі вся де для
            до є її йому його з за зі і із їх й коли кого кому ми мені між може можна на над нам нас
            не немає ні об один по після при про саме свій себе скільки та так також там те ти то
            тому тільки у хто це цей ця чи чому що щоб як яка які який якого якому якщо я
        """,
        "ar": """
            أو أي إذا إلا إلى أم أما أن إن أنا أنت أنه إنها أول أين بأي بعد بعض بل بما بها به بين
            تلك ثم جدا حتى حول حيث حين دون ذلك عليه عليها على عن عند عندما غير فإن فقد في فيه فيها
            قبل قد كان كانت كل كم كما كيف لأن لا لدى لكن لكنه لم لماذا لن له لها لو ليس ليست ما ماذا
            متى مع مم من منذ منه منها نحن هذا هذه هل هم هنا هناك هو هي و وقد ولا ومن وهو وهي يا
        """,
        "fa": """
            آن آنها از است اگر او ای این با باید بر برای بود به بی پس تا چرا چه چگونه چند چیست خود
            در دیگر را شد شود کجا کدام کرد کند که کی ما من می نیز نیست و ها هر هم همه هیچ یا یک
        """,
        "hi": """
            अपना अपनी अपने अब अभी आप इन इस इसका इसकी इसके इसलिए इसी उन उनका उनकी उनके उस उसका उसकी
            उसके उसे एक एवं और कब कर करता करते करना करने कहाँ का कि कितना कितनी कितने किस किसी की
            कुछ के कैसे को कोई कौन क्या क्यों गई गए गया जब जहाँ जा जाता जाती जाते जाना जाने जिस जो
            तक तब तो था थी थे दिया द्वारा न नहीं ने पर फिर बहुत भी मगर मुझे में मेरा मैं यदि यह यहाँ
            या ये रहा रही रहे लिए लेकिन वह वहाँ वाला वाली वाले वे सकता सकती सकते सब सभी सा साथ सी से
            हम ही हुआ हुई हुए है हैं हो होता होती होते होना होने
        """,
    }.items()
}


def index_text(text: str) -> str:
    """The text to index: CJK runs become bigrams, and the parts of identifiers are appended."""
    parts = [part for word in CAMEL.findall(text) for part in camel_parts(word)]
    return CJK.sub(lambda run: f" {' '.join(bigrams(run[0]))} ", text) + (
        "\n" + " ".join(parts) if parts else ""
    )


def is_non_latin(text: str) -> bool:
    """Whether most letters of a text are not Latin."""
    if text.isascii():
        return False
    letters: list[str] = _LETTER.findall(text)
    return 2 * sum(
        letter > "\u024f" and not "\u1e00" <= letter <= "\u1eff" for letter in letters
    ) > len(letters)


def camel_parts(identifier: str) -> list[str]:
    """The words inside an identifier: parseHTMLDocument is parse, HTML, Document."""
    return _CAMEL_PART.findall(identifier)


def bigrams(run: str) -> list[str]:
    """Every character of a CJK run with its successor; the last one stands alone.

    So every character begins a token, and a single one is found as a prefix.
    """
    return [run[i : i + 2] for i in range(len(run))]


def stop_words(words: Iterable[str]) -> frozenset[str]:
    """The stop words of the language that has most of some casefolded words; by default English.

    Two words of a language are needed: `de facto` and `la liga` are said in English.
    """
    different = {word for word in words if len(word) > 1}  # single letters are names in code
    found = max(OTHERS.values(), key=lambda stops: len(different & stops))
    return found if len(different & found) > max(1, len(different & ENGLISH)) else ENGLISH


def is_foreign(text: str) -> bool:
    """Whether a text is in another language than English; code and lists of names are not.

    It is a guess, for advice only.
    """
    words = set(WORD.findall(text[:_LETTERS].casefold()))
    stops = stop_words(words)
    said = sum(len(word) > 1 for word in words & stops)
    prose = stops is not ENGLISH and said > _LEAST * len(words)
    return prose or is_non_latin(text[:_LETTERS])


def mostly_foreign(texts: Sequence[str]) -> bool:
    """Whether more than half of some texts are in other languages than English."""
    return 2 * sum(map(is_foreign, texts)) > len(texts)
