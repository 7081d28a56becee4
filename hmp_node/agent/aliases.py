"""Other names of commands: the seed's, those of its kin, and Russian, Ukrainian and Spanish ones. Pure, never raises.

Tables only; `canonical` gives the registry's name and the arguments in its spelling. A name that stands in no table
stays as it is: the loop tells the model that there is no such command, with `suggest`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from typing import Any

from hmp_node.agent.arguments import renamed

MAX_NAME = 100  # characters; nothing longer is a name
_APART = re.compile(r"[\s._\-/:]+")

# The first word of a name -> the group of the registry.
_GROUPS: Mapping[str, str] = {
    word: group
    for group, words in {
        "diary": "diary diaries дневник щоденник diario",
        "concept": "concept concepts концепт концепты понятие понятия концепти поняття concepto conceptos",
        "link": "link links связь связи звязок зв'язок зв'язки enlace enlaces",
        "graph": "graph граф grafo",
        "thought": "thought thoughts блокнот мысль мысли думка думки pensamiento pensamientos",
        "memory": "memory memories mem память воспоминание пам'ять спогад memoria memorias",
        "project": "project projects проект проекты проєкт проєкти проекти proyecto proyectos",
        "session": "session sessions сессия сессии сесія сесії sesión sesion sesiones",
        "note": "note notes заметка заметки записка записки нотатка нотатки nota notas",
        "reply": "reply replies responses response реплика реплики",
        "process": "process processes процесс процессы процес процеси proceso procesos",
        "table": "table tables таблица таблицы таблиця таблиці tabla tablas",
        "script": "script scripts скрипт скрипты скрипти",
        "file": "file files файл файлы файли archivo archivos",
        "peer": "peer peers пир пиры сосед соседи узел узлы агенты сусід сусіди вузли vecino vecinos",
        "llm": "llm llms model models модель модели моделі modelo modelos",
        "cycle": "cycle loop цикл ciclo",
        "cleanup": "cleanup clean очистка очищення limpieza",
        "mesh": "mesh меш",
        "node": "node нода nodo",
        "shell": "shell",
        "tick": "tick ticks тик тики",
        "approval": "approval approvals",
        "grant": "grant grants",
    }.items()
    for word in words.split()
}
# What follows the group -> the verb of the registry.
_VERBS: Mapping[str, str] = {
    word: verb
    for verb, words in {
        "add": "add create new добавить добавь создать записать додати створити записати añadir crear",
        "read": "read get прочитать читать прочти прочитати читати leer",
        "update": "update edit change изменить обновить правка змінити оновити actualizar cambiar",
        "delete": "delete remove del удалить удали видалити borrar eliminar",
        "list": "list ls список перечень listar lista",
        "search": "search find query поиск найти искать пошук знайти шукати buscar",
        "pin": "pin закрепить закріпити fijar",
        "unpin": "unpin открепить",
        "archive": "archive архивировать архівувати archivar",
        "unarchive": "unarchive",
        "link": "link связать пов'язати enlazar",
        "send": "send отправить послать надіслати enviar",
        "show": "show показать показати mostrar",
        "tag": "tag tags.set пометить тег",
        "run": "run exec execute запустить выполнить запустити ejecutar",
        "start": "start запуск",
        "stop": "stop kill terminate остановить зупинити detener",
        "close": "close mark закрыть закрити cerrar",
        "output": "output tail вывод вивід salida",
        "write": "write",
        "save": "save сохранить зберегти guardar",
        "resume": "resume continue продолжить продовжити reanudar continuar",
        "supersede": "supersede replace заменить замінити reemplazar",
        "restore": "restore восстановить відновити restaurar",
        "select": "select выбрать обрати seleccionar",
        "expand": "expand раскрыть розкрити expandir",
        "merge": "merge объединить слить об'єднати unir",
        "mark.read": "mark.read markread mark.as.read прочитано отметить.прочитанным пометить.прочитанным",
        "clean": "clean cleanup очистить очистити limpiar",
        "pause": "pause пауза pausa",
        "mode": "mode режим modo",
        "idle": "idle sleep сон ожидание",
    }.items()
    for word in words.split()
}
# What a name is after its words were put into the registry's, or as a whole -> the name of the registry.
_NAMES: Mapping[str, str] = {
    # help and the node
    **dict.fromkeys(("help", "справка", "помощь", "довідка", "допомога", "ayuda", "node.help", "man"), "node.help"),
    **dict.fromkeys(("status", "статус", "node.status", "estado"), "node.status"),
    # diary
    **dict.fromkeys(("diary.entry", "diary", "запись.в.дневник", "запис.у.щоденник", "entrada.de.diario"), "diary.add"),
    **dict.fromkeys(
        ("diary.tags.stats", "diary.tag.stats", "diary.tags", "tags.stats", "tag.stats"), "diary.tag_stats"
    ),
    "diary.unpin": "diary.pin",
    "diary.unarchive": "diary.archive",
    "diary.show": "diary.read",
    "diary.relation": "diary.relations",
    "diary.related": "diary.relations",
    # graph
    "graph.read": "concept.read",
    "graph.update": "concept.update",
    "graph.delete": "concept.delete",
    "graph.list": "concept.list",
    "graph.search": "concept.search",
    "graph.expand": "concept.expand",
    "graph.merge": "concept.merge",
    "graph.link": "link.add",
    "graph.pin": "concept.pin",
    "concept.unpin": "concept.pin",
    "concept.upsert": "concept.add",
    "concept.show": "concept.read",
    "concept.link": "link.add",
    "link.search": "link.list",
    # thoughts: the seed's llm_memory
    **{
        f"llm.memory.{verb}": f"thought.{verb}" for verb in ("add", "read", "update", "delete", "list", "search", "pin")
    },
    "llm.memory": "thought.add",
    "thought": "thought.add",
    "thought.write": "thought.add",
    "thought.show": "thought.read",
    "thought.unpin": "thought.pin",
    # memories, projects, sessions
    "memory": "memory.add",
    "memory.write": "memory.add",
    "memory.save": "memory.add",
    "memory.read": "memory.get",
    "memory.show": "memory.get",
    "memory.delete": "memory.archive",
    "memory.unarchive": "memory.restore",
    "memory.versions": "memory.history",
    "memory.asof": "memory.as_of",
    "memory.as.of": "memory.as_of",
    "project.read": "project.get",
    "project.show": "project.get",
    "project.delete": "project.archive",
    "project.restore": "project.archive",
    "session.add": "session.save",
    "session.write": "session.save",
    "session.read": "session.resume",
    "session.show": "session.resume",
    # notes and mesh
    **dict.fromkeys(("send", "send.message", "message.send", "enviar.mensaje", "надіслати.повідомлення"), "note.send"),
    **dict.fromkeys(("отправить", "отправить.сообщение", "послать.сообщение", "написать"), "note.send"),
    **dict.fromkeys(("mesh.send", "mesh.interact", "mesh.message", "mesh.say"), "note.send"),
    **dict.fromkeys(("note.mark.read", "note.mark"), "note.mark_read"),
    **dict.fromkeys(("note", "note.write", "заметка", "нотатка", "nota"), "note.add"),
    "note.count": "note.counts",
    "note.count.unread": "note.counts",
    # processes, shell, scripts, files
    **dict.fromkeys(("shell", "bash", "оболочка", "терминал"), "shell.run"),
    "process.run": "process.start",
    "process.add": "process.start",
    "process.mark": "process.close",
    "process.delete": "process.close",
    "process.read": "process.output",
    "process.log": "process.list",
    "script.start": "script.run",
    "script.show": "script.read",
    "file.add": "file.write",
    "file.save": "file.write",
    "thought.save": "thought.add",
    "note.save": "note.add",
    # cleaning
    "cleanup.process.log": "process.clean",
    "cleanup.recent.responses": "reply.clean",
    "cleanup.llm.recent.responses": "reply.clean",
    # the loop
    **dict.fromkeys(("idle", "sleep", "wait", "ожидание", "сон", "очікування", "espera"), "cycle.idle"),
    **dict.fromkeys(("pause", "пауза", "pausa", "cycle.interval"), "cycle.pause"),
    **dict.fromkeys(("mode", "режим", "modo", "set.mode"), "cycle.mode"),
    **dict.fromkeys(("wake", "wake.up", "idle.off", "cycle.wake", "проснуться"), "cycle.idle"),
    "cycle.settings": "cycle.show",
    "cycle.read": "cycle.show",
    "cycle.update": "cycle.set",
    # models, peers, what is the owner's
    "llm.add": "llm.register",
    "llm.delete": "llm.remove",
    "llm.read": "llm.list",
    **dict.fromkeys(("peer.add", "peer.connect"), "peer.join"),
    "peer.search": "peer.find",
    "peer.read": "peer.show",
    "peer.delete": "peer.purge",
    "mesh.discover": "peer.find",
    "mesh.ping": "peer.ping",
    "mesh.peers": "peer.list",
    "trust": "peer.trust",
    "grant": "grant.add",
    "grant.delete": "grant.remove",
    "approve": "approval.approve",
    "refuse": "approval.refuse",
    "undo": "tick.undo",
    "table.search": "table.select",
    "table.read": "table.select",
    "table.add": "table.insert",
    "table.создать": "table.create",
    "table.створити": "table.create",
}
# Where the registry has the very verb that means another one elsewhere.
_KEPT = frozenset({"table.create", "table.insert", "peer.find"})
# Names that say an argument.
_SAID: Mapping[str, Mapping[str, Any]] = {
    "diary.unpin": {"pinned": False},
    "concept.unpin": {"pinned": False},
    "thought.unpin": {"pinned": False},
    "diary.unarchive": {"archived": False},
    "project.restore": {"archived": False},
    **{name: {"off": True} for name in ("wake", "wake.up", "idle.off", "cycle.wake", "проснуться")},
}


def canonical(name: str, args: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name and arguments of a command as the registry spells them; unknown ones as they came."""
    if len(name) > MAX_NAME:
        return name, dict(args)
    plain = name.strip().lower().replace("__", ".").replace("ʼ", "'").replace("’", "'")
    words = ".".join(filter(None, _APART.split(plain)))
    key = words if words in _NAMES else _composed(words)
    return renamed(_NAMES.get(key, key or plain), {**_SAID.get(words, _SAID.get(key, {})), **args})


def suggest(name: str, known: Collection[str]) -> str | None:
    """The command that was meant by an unknown name, perhaps: the nearest one; None if none is near."""
    meant = canonical(name[:MAX_NAME], {})[0]
    if meant in known:
        return meant
    near = difflib.get_close_matches(meant, sorted(known), n=1, cutoff=0.6)
    return near[0] if near else None


def _composed(words: str) -> str:
    """Group and verb put into the registry's words; empty if there is no such group."""
    first, _, rest = words.partition(".")
    group = _GROUPS.get(first)
    if group is None:
        return ""
    if group == "cleanup" and rest in _GROUPS:
        return f"{_GROUPS[rest]}.clean"
    own = f"{group}.{rest}"
    if not rest or own in _NAMES or own in _KEPT:
        return own if rest else group
    return f"{group}.{_VERBS.get(rest, rest)}"
