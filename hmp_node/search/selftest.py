"""Whether an embedding model speaks a language, found by asking it: twelve questions, twelve passages, four languages.

A question and its passage share no telling word, so that only a model that knows what they mean puts them together; the
other eleven passages are the distractors. Each language is asked within itself and against the English passages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from hmp_node.search.language import LANGUAGES

Vectors = Sequence[Sequence[float]]

ENOUGH = 0.75
"""The share of right answers from which a model counts as speaking a language fully."""

NOTHING = 0.35
"""The share up to which it does not at all: chance is one in twelve, names and borrowed words help a little."""

QUESTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "en": (
            "Why did our program stop answering customers?",
            "When do we leave for the seaside?",
            "What does the doctor advise against headaches?",
            "Who cooks dinner on weekends?",
            "How much do we pay for the flat?",
            "What animal lives with our grandmother?",
            "Which instrument is my sister learning?",
            "What broke in the car?",
            "Where did they grow potatoes?",
            "How can one get a book home?",
            "What will the weather be?",
            "Who won the match?",
        ),
        "es": (
            "¿Por qué nuestro programa dejó de responder a los clientes?",
            "¿Cuándo nos vamos a la playa?",
            "¿Qué aconseja el médico contra el dolor de cabeza?",
            "¿Quién prepara la cena los fines de semana?",
            "¿Cuánto pagamos por el piso?",
            "¿Qué animal vive con nuestra abuela?",
            "¿Qué instrumento aprende mi hermana?",
            "¿Qué se averió en el coche?",
            "¿Dónde cultivaban patatas?",
            "¿Cómo se puede llevar un libro a casa?",
            "¿Qué tiempo va a hacer?",
            "¿Quién ganó el partido?",
        ),
        "ru": (
            "Почему наша программа перестала отвечать клиентам?",
            "Когда мы едем на море?",
            "Что советует врач от головной боли?",
            "Кто готовит ужин по выходным?",
            "Сколько мы платим за квартиру?",
            "Какое животное живёт у нашей бабушки?",
            "На каком инструменте учится моя сестра?",
            "Что сломалось в машине?",
            "Где выращивали картошку?",
            "Как взять книгу домой?",
            "Какая ожидается погода?",
            "Кто выиграл матч?",
        ),
        "uk": (
            "Чому наша програма перестала відповідати клієнтам?",
            "Коли ми їдемо на море?",
            "Що радить лікар від головного болю?",
            "Хто готує вечерю у вихідні?",
            "Скільки ми платимо за квартиру?",
            "Яка тварина живе в нашої бабусі?",
            "На якому інструменті вчиться моя сестра?",
            "Що зламалося в машині?",
            "Де вирощували картоплю?",
            "Як узяти книжку додому?",
            "Яка очікується погода?",
            "Хто виграв матч?",
        ),
    }
)

PASSAGES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "en": (
            "The server ran out of memory at night, and all requests failed until it was restarted.",
            "Our holiday on the coast begins in the first week of July.",
            "Drink more water, sleep longer and take a tablet only if the migraine lasts.",
            "On Saturday and Sunday it is dad who stands at the stove and feeds the whole family.",
            "The rent is nine hundred euros a month, heating included.",
            "Granny keeps an old ginger cat that sleeps on the windowsill.",
            "She takes violin lessons every Wednesday at the music school.",
            "The mechanic replaced the worn brake pads and the battery.",
            "There was a vegetable garden behind the village house.",
            "The library lends novels to readers for three weeks for free.",
            "Heavy rain and strong wind are forecast for tomorrow.",
            "The home team scored twice in the last minutes and took the cup.",
        ),
        "es": (
            "El servidor se quedó sin memoria por la noche y fallaron todas las peticiones hasta que lo reiniciaron.",
            "Nuestras vacaciones en la costa empiezan la primera semana de julio.",
            "Beba más agua, duerma más y tome una pastilla solo si la migraña persiste.",
            "El sábado y el domingo es papá quien cocina y da de comer a toda la familia.",
            "El alquiler es de novecientos euros al mes, calefacción incluida.",
            "La yaya tiene un viejo gato pelirrojo que duerme en la ventana.",
            "Toma clases de violín todos los miércoles en la escuela de música.",
            "El mecánico cambió las pastillas de freno gastadas y la batería.",
            "Detrás de la casa del pueblo había un huerto de verduras.",
            "La biblioteca presta novelas a los lectores durante tres semanas gratis.",
            "Para mañana se prevén lluvias intensas y viento fuerte.",
            "El equipo local marcó dos goles en los últimos minutos y se llevó la copa.",
        ),
        "ru": (
            "Ночью на сервере кончилась память, и все запросы падали, пока его не перезапустили.",
            "Наш отпуск на побережье начинается в первую неделю июля.",
            "Пейте больше воды, дольше спите и принимайте таблетку, только если мигрень не проходит.",
            "В субботу и воскресенье у плиты стоит папа и кормит всю семью.",
            "Аренда стоит девятьсот евро в месяц вместе с отоплением.",
            "У бабули есть старый рыжий кот, который спит на подоконнике.",
            "Каждую среду она ходит на уроки скрипки в музыкальную школу.",
            "Механик заменил изношенные тормозные колодки и аккумулятор.",
            "За деревенским домом был огород с овощами.",
            "Библиотека бесплатно выдаёт романы читателям на три недели.",
            "На завтра обещают сильный дождь и ветер.",
            "Хозяева поля забили дважды в последние минуты и забрали кубок.",
        ),
        "uk": (
            "Уночі на сервері скінчилася пам'ять, і всі запити падали, доки його не перезапустили.",
            "Наша відпустка на узбережжі починається першого тижня липня.",
            "Пийте більше води, довше спіть і приймайте пігулку, лише якщо мігрень не минає.",
            "У суботу й неділю біля плити стоїть тато й годує всю родину.",
            "Оренда коштує дев'ятсот євро на місяць разом з опаленням.",
            "У бабуні є старий рудий кіт, який спить на підвіконні.",
            "Щосереди вона ходить на уроки скрипки до музичної школи.",
            "Механік замінив зношені гальмівні колодки та акумулятор.",
            "За сільською хатою був город з овочами.",
            "Бібліотека безкоштовно видає романи читачам на три тижні.",
            "На завтра обіцяють сильний дощ і вітер.",
            "Господарі поля забили двічі за останні хвилини й забрали кубок.",
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Fluency:
    """By language, 0 (does not speak it) to 1: ``within`` the language, ``across`` from it to English text.

    ``right``: the share of questions that found their passage within the language, as counted.
    """

    within: Mapping[str, float]
    across: Mapping[str, float]
    right: Mapping[str, float]

    def of(self, languages: Sequence[str]) -> float:
        """What the vector leg is worth for a question in one of these languages; for none given, in any.

        A model that only knows how to get from a language to English still knows something of it.
        """
        asked = [one for one in languages if one in self.within] or list(self.within)
        return sum(max(self.within[one], self.across[one]) for one in asked) / len(asked)


def assess(questions: Mapping[str, Vectors], passages: Mapping[str, Vectors]) -> Fluency:
    """How well a model speaks, from its vectors of `QUESTIONS` and `PASSAGES`, of any length but zero."""
    right = {one: _right(questions[one], passages[one]) for one in LANGUAGES}
    return Fluency(
        within=MappingProxyType({one: _fluent(right[one]) for one in LANGUAGES}),
        across=MappingProxyType({one: _fluent(_right(questions[one], passages["en"])) for one in LANGUAGES}),
        right=MappingProxyType(right),
    )


def _fluent(right: float) -> float:
    return min(1.0, max(0.0, (right - NOTHING) / (ENOUGH - NOTHING)))


def _right(questions: Vectors, passages: Vectors) -> float:
    """The share of questions whose nearest passage is their own."""
    found = 0
    for place, question in enumerate(questions):
        cosines = [_cosine(question, passage) for passage in passages]
        found += max(range(len(cosines)), key=cosines.__getitem__) == place
    return found / len(questions)


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    length = (_dot(one, one) * _dot(other, other)) ** 0.5
    return _dot(one, other) / length if length else 0.0


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(float(left) * float(right) for left, right in zip(one, other, strict=True))
