"""W8: the dump of a Firebird database, streamed. At scale 1 as the Russian measurement of 2007 had it: 16 KB pages, 150
tables, 300 indexes, one table of 14,000,000 rows, two of 1,500,000 and 1,100,000.

Five dumps: the first; of the same database; with one byte before it, so that everything has moved; after the newest 1 % of the
rows have changed; after 1 % have changed that lie all over the table. The server is a part of the workload: it is not measured, the client gbak is."""


from .base import Step, Workload
from .firebird import Firebird

BIG, MIDDLE, SMALL_TABLES, SMALL_ROWS = 14_000_000, (1_500_000, 1_100_000), 147, 400


class W8(Workload):
    name = "W8"
    title = "The dump of a database, by gbak over TCP"
    source = "a Firebird 3 database, filled from a seed"
    needs = ("gbak", "isql-fb", "/usr/sbin/firebird")
    stream = True

    def __init__(self, scale=1.0, seed=1):
        super().__init__(scale, seed)
        self.server = None

    def steps(self):
        return [Step("first"), Step("no change"), Step("a byte before", self.prefix), Step("newest 1 % changed", self.newest), Step("1 % changed all over", self.all_over)]

    def make(self, tree):
        server = Firebird(tree).start(new=True)
        try:
            server.sql("".join(self.schema()))
        finally:
            server.stop()
        return {"rows": self.count(BIG) + sum(map(self.count, MIDDLE)) + SMALL_TABLES * self.count(SMALL_ROWS, 4), "tables": 3 + SMALL_TABLES}

    def tables(self):
        """(name, rows) of all tables."""
        return [("big", self.count(BIG)), *((f"middle{n}", self.count(rows)) for n, rows in enumerate(MIDDLE)),
                *((f"small{n}", self.count(SMALL_ROWS, 4)) for n in range(SMALL_TABLES))]

    def schema(self):
        """The statements that make and fill all tables, two indexes each."""
        for number, (table, rows) in enumerate(self.tables()):
            yield (f"create table {table} (id bigint not null, note varchar(120), amount numeric(15,2), place integer); commit;\n"
                   f"set term ^;\nexecute block as declare i bigint = 0; begin while (i < {rows}) do begin\n"
                   f"insert into {table} values (:i, 'row ' || :i || ' ' || hash((:i + {self.seed}) * 7919) || ' ' || hash(:i * 104729 + {number}), "
                   f"mod(hash(:i * 31), 1000000) / 100.0, mod(hash(:i * 17), 5000)); i = i + 1; end end^\nset term ;^\ncommit;\n"
                   f"alter table {table} add primary key (id); create index i_{table} on {table} (place); commit;\n")

    def prepare(self, tree):
        self.before = ""
        self.server = Firebird(tree).start()
        return tree

    def finish(self):
        if self.server:
            self.server.stop()
            self.server = None

    def helpers(self):
        return [self.server.process.pid] if self.server else []

    def prefix(self, *_):
        self.before = "printf x; "

    def newest(self, *_):
        self.before = ""
        self.server.sql(f"update big set note = 'changed ' || hash(id + {self.seed}) where id >= {self.count(BIG) * 99 // 100}; commit;\n")

    def all_over(self, *_):
        self.server.sql(f"update big set note = 'again ' || hash(id + {self.seed}) where mod(id, 100) = 7; commit;\n")

    def dump(self, tree):
        command = self.server.dump()
        return f"( {self.before}{command} )" if self.before else command

    def sums(self):
        """Questions whose answers say what each table holds, in a few numbers. One for all of them would have more parts than Firebird takes, 256."""
        of = "count(*), sum(mod(hash(note), 1000003)), sum(amount), sum(mod(id, 1009) * place)"
        return "\n".join(f"select {of} from {table};" for table, _ in self.tables())

    def fingerprint(self):
        """What all tables hold, in a few numbers."""
        return self.server.ask(self.sums())

    def sound(self, stream, expected):
        """Whether a dump that was given back restores to a database with those contents."""
        return self.server.from_dump(stream, self.sums()) == expected


class W8Services(W8):
    name = "W8-se"
    title = "The dump of a database, by gbak and the Services API"
    data_of = "W8"

    def dump(self, tree):
        command = self.server.dump(services=True)
        return f"( {self.before}{command} )" if self.before else command


WORKLOADS = [W8, W8Services]
