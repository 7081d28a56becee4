"""Function words of the four languages: they tell the language of a text, and say nothing of its subject."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from hmp_node.search.words import fold

_TEXTS = {
    "ru": """
        а без более перед та бы был была были было быть в вам вами вас ваш ваша ваше ваши весь во вот все
        всего всей всем всеми всех всё всю вы где да даже для до его ее её ей ему если есть еще ещё ж же за
        здесь и из или им ими их к каждый как какая какие какими каких каком какой какого какому каким какую
        ко когда кого кому кем ком которая которого которое которой котором которому которую которые которым
        которыми которых который кто куда ли лишь между меня мне мной мы на над нам нами нас наш наша наше
        наши не него нее неё ней нем нём нет ни ним ними них но ну о об обо однако он она они оно от откуда
        очень по под после потому почему при про с сам сама сами само свое своё своего своей своем своём
        своему своею свои своим своими своих свой свою себе себя сейчас со собой сколько так также такая такие
        таких такого такое такой там тебе тебя тем теми тех то тобой того тоже той только тому тот ту тут ты у
        уже хотя чего чей чем чему через что чтобы чье чьё чья эта эти этим этими этих это этого этой этом
        этому этот эту я является мой моя мое моё мои моего моей моему моим моих мою
    """,
    "uk": """
        а або адже я щось хтось десь але б без би був була були було бути в вам вами вас ваш ваша ваше ваші
        весь вже ви від він вона вони воно все всі всіх всім всього всьому всю втім г де для до дуже е є ж же
        з за завжди зі зо і із інша інше інший інші й його йому її їй їм їх їхній їхня їхнє їхні кого кожен
        кожна кожний коли кому ким котра котрий котрі кілька крім куди лише ми мене мені мій моя моє мої мною
        між на над нам нами нас наш наша наше наші не ні ним них ній ньому нього неї ну о об он от ось перед
        під після по понад при про проте саме сам сама самі свій своє свого своєї своєму свої своїй своїм
        своїми своїх свою своя себе собі собою скільки та так така таке такий такі такого також там те тебе
        тобі той тобою того тоді тож тому ти тим тими тих то ту тут у усе усі усіх уже хіба хоча хто це цей
        цього цьому ці цим цими цих ця цю цієї цій чи чий чия чиє чиї чим чого чому через ще що щоб щодо як
        яка яке який які яким якими яких якій якого якої якому якщо якою яку моїх моїм моєї моєму мого
    """,
    "es": """
        a al algo algún alguna algunas alguno algunos ante antes aquel aquella aquellas aquellos aquí así aun
        aún aunque bien cada como cómo con contra cual cuál cuales cuáles cuando cuándo cuanto cuánto cuanta
        cuánta cuantos cuántos cuantas cuántas de del desde donde dónde dos durante e el él ella ellas ello
        ellos en entre era eran eras eres es esa esas ese eso esos esta está están estaba estaban estado estar
        estas este esto estos estoy fue fueron fui ha había habían haber hace hacia han has hasta hay he hemos
        la las le les lo los más me mi mí mis mientras muy nada ni no nos nosotros nuestra nuestras nuestro
        nuestros o os otra otras otro otros para pero poco por porque qué que quien quién quienes quiénes se
        sea sean según ser si sí sido siendo sin sino sobre sois somos son soy su sus suya suyo también tan
        tanto te tenía tiene tienen tener tengo ti todo toda todas todos tu tú tus un una unas uno unos usted
        ustedes vosotros y ya yo
    """,
    "en": """
        a about above after again against all also am an and any are as at be because been before being below
        between both but by can could did do does doing done down during each few for from further get got had
        has have having he her here hers herself him himself his how i if in into is it its itself just let me
        more most my myself no nor not now of off on once only or other our ours ourselves out over own same
        she should so some such than that the their theirs them themselves then there these they this those
        through to too under until up upon us very was we were what when where which while who whom whose why
        will with would you your yours yourself yourselves dont doesnt didnt isnt arent wasnt werent cant
        couldnt wont wouldnt shouldnt hasnt havent hadnt im ive id ill youre youve youll hes shes theyre weve
        theyve thats whats s t m re ve ll d
    """,
}

STOPWORDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {language: frozenset(fold(word) for word in text.split()) for language, text in _TEXTS.items()}
)
"""Function words by language, folded as :func:`hmp_node.search.words.fold` folds."""
