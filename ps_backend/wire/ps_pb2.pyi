from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Invitation(_message.Message):
    __slots__ = ("port", "admission", "socket")
    PORT_FIELD_NUMBER: _ClassVar[int]
    ADMISSION_FIELD_NUMBER: _ClassVar[int]
    SOCKET_FIELD_NUMBER: _ClassVar[int]
    port: int
    admission: bytes
    socket: str
    def __init__(self, port: _Optional[int] = ..., admission: _Optional[bytes] = ..., socket: _Optional[str] = ...) -> None: ...

class Connection(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class Waiting(_message.Message):
    __slots__ = ("seconds",)
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    def __init__(self, seconds: _Optional[float] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("session", "client", "sequence", "settled", "frees", "payload", "run", "write", "read", "contribute", "release", "join", "end", "nothing", "open", "close", "status", "wait", "renew", "cancel", "custom", "copy", "fetch", "compress", "pin", "save", "load", "publish", "make_keys", "make_rows", "look_up", "change_rows", "remove_keys", "read_keys", "copy_rows", "restore_keys", "chunk", "segment", "key", "life")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    FREES_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    WRITE_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    NOTHING_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    COMPRESS_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    MAKE_KEYS_FIELD_NUMBER: _ClassVar[int]
    MAKE_ROWS_FIELD_NUMBER: _ClassVar[int]
    LOOK_UP_FIELD_NUMBER: _ClassVar[int]
    CHANGE_ROWS_FIELD_NUMBER: _ClassVar[int]
    REMOVE_KEYS_FIELD_NUMBER: _ClassVar[int]
    READ_KEYS_FIELD_NUMBER: _ClassVar[int]
    COPY_ROWS_FIELD_NUMBER: _ClassVar[int]
    RESTORE_KEYS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    session: str
    client: str
    sequence: int
    settled: int
    frees: _containers.RepeatedScalarFieldContainer[int]
    payload: int
    run: Run
    write: Write
    read: Read
    contribute: Contribute
    release: Release
    join: Join
    end: End
    nothing: Nothing
    open: Open
    close: Close
    status: StatusQuery
    wait: Wait
    renew: Nothing
    cancel: Cancel
    custom: Custom
    copy: Copy
    fetch: Fetch
    compress: Compress
    pin: Pin
    save: Save
    load: Load
    publish: Publish
    make_keys: MakeKeys
    make_rows: MakeRows
    look_up: RowCall
    change_rows: RowCall
    remove_keys: RemoveKeys
    read_keys: ReadKeys
    copy_rows: CopyRows
    restore_keys: RestoreKeys
    chunk: bytes
    segment: Segment
    key: bytes
    life: int
    def __init__(self, session: _Optional[str] = ..., client: _Optional[str] = ..., sequence: _Optional[int] = ..., settled: _Optional[int] = ..., frees: _Optional[_Iterable[int]] = ..., payload: _Optional[int] = ..., run: _Optional[_Union[Run, _Mapping]] = ..., write: _Optional[_Union[Write, _Mapping]] = ..., read: _Optional[_Union[Read, _Mapping]] = ..., contribute: _Optional[_Union[Contribute, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., join: _Optional[_Union[Join, _Mapping]] = ..., end: _Optional[_Union[End, _Mapping]] = ..., nothing: _Optional[_Union[Nothing, _Mapping]] = ..., open: _Optional[_Union[Open, _Mapping]] = ..., close: _Optional[_Union[Close, _Mapping]] = ..., status: _Optional[_Union[StatusQuery, _Mapping]] = ..., wait: _Optional[_Union[Wait, _Mapping]] = ..., renew: _Optional[_Union[Nothing, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., custom: _Optional[_Union[Custom, _Mapping]] = ..., copy: _Optional[_Union[Copy, _Mapping]] = ..., fetch: _Optional[_Union[Fetch, _Mapping]] = ..., compress: _Optional[_Union[Compress, _Mapping]] = ..., pin: _Optional[_Union[Pin, _Mapping]] = ..., save: _Optional[_Union[Save, _Mapping]] = ..., load: _Optional[_Union[Load, _Mapping]] = ..., publish: _Optional[_Union[Publish, _Mapping]] = ..., make_keys: _Optional[_Union[MakeKeys, _Mapping]] = ..., make_rows: _Optional[_Union[MakeRows, _Mapping]] = ..., look_up: _Optional[_Union[RowCall, _Mapping]] = ..., change_rows: _Optional[_Union[RowCall, _Mapping]] = ..., remove_keys: _Optional[_Union[RemoveKeys, _Mapping]] = ..., read_keys: _Optional[_Union[ReadKeys, _Mapping]] = ..., copy_rows: _Optional[_Union[CopyRows, _Mapping]] = ..., restore_keys: _Optional[_Union[RestoreKeys, _Mapping]] = ..., chunk: _Optional[bytes] = ..., segment: _Optional[_Union[Segment, _Mapping]] = ..., key: _Optional[bytes] = ..., life: _Optional[int] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("error", "partials", "payload", "opened", "status", "seconds", "asked", "clocks", "kept", "custom", "peer_messages", "peer_bytes", "pinned", "saved", "leaves_in", "publications", "keyed", "chunk")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PARTIALS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    CLOCKS_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_FIELD_NUMBER: _ClassVar[int]
    PEER_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PEER_BYTES_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    LEAVES_IN_FIELD_NUMBER: _ClassVar[int]
    PUBLICATIONS_FIELD_NUMBER: _ClassVar[int]
    KEYED_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    error: Error
    partials: _containers.RepeatedScalarFieldContainer[bytes]
    payload: int
    opened: Opened
    status: Status
    seconds: float
    asked: Asked
    clocks: Clocks
    kept: int
    custom: bytes
    peer_messages: int
    peer_bytes: int
    pinned: Pinned
    saved: _containers.RepeatedCompositeFieldContainer[Piece]
    leaves_in: float
    publications: _containers.RepeatedCompositeFieldContainer[Publication]
    keyed: KeyedState
    chunk: bytes
    def __init__(self, error: _Optional[_Union[Error, _Mapping]] = ..., partials: _Optional[_Iterable[bytes]] = ..., payload: _Optional[int] = ..., opened: _Optional[_Union[Opened, _Mapping]] = ..., status: _Optional[_Union[Status, _Mapping]] = ..., seconds: _Optional[float] = ..., asked: _Optional[_Union[Asked, _Mapping]] = ..., clocks: _Optional[_Union[Clocks, _Mapping]] = ..., kept: _Optional[int] = ..., custom: _Optional[bytes] = ..., peer_messages: _Optional[int] = ..., peer_bytes: _Optional[int] = ..., pinned: _Optional[_Union[Pinned, _Mapping]] = ..., saved: _Optional[_Iterable[_Union[Piece, _Mapping]]] = ..., leaves_in: _Optional[float] = ..., publications: _Optional[_Iterable[_Union[Publication, _Mapping]]] = ..., keyed: _Optional[_Union[KeyedState, _Mapping]] = ..., chunk: _Optional[bytes] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("kind", "message")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    message: str
    def __init__(self, kind: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class Nothing(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusQuery(_message.Message):
    __slots__ = ("metrics",)
    METRICS_FIELD_NUMBER: _ClassVar[int]
    metrics: bool
    def __init__(self, metrics: bool = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class Custom(_message.Message):
    __slots__ = ("name", "body", "arrays")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    name: str
    body: bytes
    arrays: _containers.RepeatedCompositeFieldContainer[Array]
    def __init__(self, name: _Optional[str] = ..., body: _Optional[bytes] = ..., arrays: _Optional[_Iterable[_Union[Array, _Mapping]]] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ("pid", "file", "nonce")
    PID_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    pid: int
    file: int
    nonce: bytes
    def __init__(self, pid: _Optional[int] = ..., file: _Optional[int] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class Space(_message.Message):
    __slots__ = ("kind", "length", "id", "details")
    KIND_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    length: int
    id: int
    details: bytes
    def __init__(self, kind: _Optional[str] = ..., length: _Optional[int] = ..., id: _Optional[int] = ..., details: _Optional[bytes] = ...) -> None: ...

class Array(_message.Message):
    __slots__ = ("buffer", "space", "dtype", "row")
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    SPACE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    buffer: int
    space: Space
    dtype: str
    row: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, buffer: _Optional[int] = ..., space: _Optional[_Union[Space, _Mapping]] = ..., dtype: _Optional[str] = ..., row: _Optional[_Iterable[int]] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("protocol", "index", "servers", "create", "first_number", "secret", "lease", "again", "newest", "epoch", "attach", "fresh")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    FIRST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    FRESH_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    index: int
    servers: int
    create: bool
    first_number: int
    secret: str
    lease: float
    again: bool
    newest: int
    epoch: int
    attach: bool
    fresh: bool
    def __init__(self, protocol: _Optional[int] = ..., index: _Optional[int] = ..., servers: _Optional[int] = ..., create: bool = ..., first_number: _Optional[int] = ..., secret: _Optional[str] = ..., lease: _Optional[float] = ..., again: bool = ..., newest: _Optional[int] = ..., epoch: _Optional[int] = ..., attach: bool = ..., fresh: bool = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ("instance", "version", "number", "lease", "epoch", "invitation", "engine")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INVITATION_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    instance: str
    version: str
    number: int
    lease: float
    epoch: int
    invitation: Invitation
    engine: str
    def __init__(self, instance: _Optional[str] = ..., version: _Optional[str] = ..., number: _Optional[int] = ..., lease: _Optional[float] = ..., epoch: _Optional[int] = ..., invitation: _Optional[_Union[Invitation, _Mapping]] = ..., engine: _Optional[str] = ...) -> None: ...

class Publication(_message.Message):
    __slots__ = ("number", "names", "arrays")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    number: int
    names: _containers.RepeatedScalarFieldContainer[str]
    arrays: _containers.RepeatedCompositeFieldContainer[Array]
    def __init__(self, number: _Optional[int] = ..., names: _Optional[_Iterable[str]] = ..., arrays: _Optional[_Iterable[_Union[Array, _Mapping]]] = ...) -> None: ...

class Publish(_message.Message):
    __slots__ = ("given", "settled", "only")
    GIVEN_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    ONLY_FIELD_NUMBER: _ClassVar[int]
    given: Publication
    settled: int
    only: bool
    def __init__(self, given: _Optional[_Union[Publication, _Mapping]] = ..., settled: _Optional[int] = ..., only: bool = ...) -> None: ...

class Close(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: bool
    def __init__(self, session: bool = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("instance", "version", "buffers", "used", "peak", "budget", "sessions", "uptime", "pid", "held", "bits", "functions", "plugins", "commands", "samples", "slow")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    PEAK_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    UPTIME_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    FUNCTIONS_FIELD_NUMBER: _ClassVar[int]
    PLUGINS_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    SLOW_FIELD_NUMBER: _ClassVar[int]
    instance: str
    version: str
    buffers: int
    used: int
    peak: int
    budget: int
    sessions: int
    uptime: float
    pid: int
    held: _containers.RepeatedCompositeFieldContainer[Held]
    bits: str
    functions: str
    plugins: _containers.RepeatedCompositeFieldContainer[Plugin]
    commands: _containers.RepeatedScalarFieldContainer[str]
    samples: _containers.RepeatedCompositeFieldContainer[Sample]
    slow: _containers.RepeatedCompositeFieldContainer[SlowRequest]
    def __init__(self, instance: _Optional[str] = ..., version: _Optional[str] = ..., buffers: _Optional[int] = ..., used: _Optional[int] = ..., peak: _Optional[int] = ..., budget: _Optional[int] = ..., sessions: _Optional[int] = ..., uptime: _Optional[float] = ..., pid: _Optional[int] = ..., held: _Optional[_Iterable[_Union[Held, _Mapping]]] = ..., bits: _Optional[str] = ..., functions: _Optional[str] = ..., plugins: _Optional[_Iterable[_Union[Plugin, _Mapping]]] = ..., commands: _Optional[_Iterable[str]] = ..., samples: _Optional[_Iterable[_Union[Sample, _Mapping]]] = ..., slow: _Optional[_Iterable[_Union[SlowRequest, _Mapping]]] = ...) -> None: ...

class Sample(_message.Message):
    __slots__ = ("name", "value", "labels")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: float
    labels: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ..., labels: _Optional[str] = ...) -> None: ...

class SlowRequest(_message.Message):
    __slots__ = ("ended", "command", "seconds", "bytes", "session")
    ENDED_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    ended: float
    command: str
    seconds: float
    bytes: int
    session: str
    def __init__(self, ended: _Optional[float] = ..., command: _Optional[str] = ..., seconds: _Optional[float] = ..., bytes: _Optional[int] = ..., session: _Optional[str] = ...) -> None: ...

class Plugin(_message.Message):
    __slots__ = ("name", "signature")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    name: str
    signature: str
    def __init__(self, name: _Optional[str] = ..., signature: _Optional[str] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("name", "buffers", "age", "lease", "left")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    AGE_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    name: str
    buffers: int
    age: float
    lease: float
    left: float
    def __init__(self, name: _Optional[str] = ..., buffers: _Optional[int] = ..., age: _Optional[float] = ..., lease: _Optional[float] = ..., left: _Optional[float] = ...) -> None: ...

class ValueType(_message.Message):
    __slots__ = ("dtype", "row")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    dtype: str
    row: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, dtype: _Optional[str] = ..., row: _Optional[_Iterable[int]] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("op", "args", "type", "links", "params")
    OP_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    op: str
    args: _containers.RepeatedScalarFieldContainer[int]
    type: ValueType
    links: _containers.RepeatedCompositeFieldContainer[Link]
    params: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, op: _Optional[str] = ..., args: _Optional[_Iterable[int]] = ..., type: _Optional[_Union[ValueType, _Mapping]] = ..., links: _Optional[_Iterable[_Union[Link, _Mapping]]] = ..., params: _Optional[_Iterable[int]] = ...) -> None: ...

class Link(_message.Message):
    __slots__ = ("op", "vector", "scalar", "negative")
    OP_FIELD_NUMBER: _ClassVar[int]
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    SCALAR_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_FIELD_NUMBER: _ClassVar[int]
    op: str
    vector: int
    scalar: int
    negative: bool
    def __init__(self, op: _Optional[str] = ..., vector: _Optional[int] = ..., scalar: _Optional[int] = ..., negative: bool = ...) -> None: ...

class Reduction(_message.Message):
    __slots__ = ("op", "args", "axis", "bins")
    OP_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    BINS_FIELD_NUMBER: _ClassVar[int]
    op: str
    args: _containers.RepeatedScalarFieldContainer[int]
    axis: int
    bins: int
    def __init__(self, op: _Optional[str] = ..., args: _Optional[_Iterable[int]] = ..., axis: _Optional[int] = ..., bins: _Optional[int] = ...) -> None: ...

class Sweep(_message.Message):
    __slots__ = ("inputs", "scalars", "steps", "outputs", "reductions")
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    SCALARS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    REDUCTIONS_FIELD_NUMBER: _ClassVar[int]
    inputs: _containers.RepeatedCompositeFieldContainer[ValueType]
    scalars: _containers.RepeatedCompositeFieldContainer[ValueType]
    steps: _containers.RepeatedCompositeFieldContainer[Step]
    outputs: _containers.RepeatedScalarFieldContainer[int]
    reductions: _containers.RepeatedCompositeFieldContainer[Reduction]
    def __init__(self, inputs: _Optional[_Iterable[_Union[ValueType, _Mapping]]] = ..., scalars: _Optional[_Iterable[_Union[ValueType, _Mapping]]] = ..., steps: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., outputs: _Optional[_Iterable[int]] = ..., reductions: _Optional[_Iterable[_Union[Reduction, _Mapping]]] = ...) -> None: ...

class SweepCall(_message.Message):
    __slots__ = ("digest", "sweep", "space", "inputs", "scalars", "outputs", "donors", "views")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SWEEP_FIELD_NUMBER: _ClassVar[int]
    SPACE_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    SCALARS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    DONORS_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    digest: str
    sweep: Sweep
    space: Space
    inputs: _containers.RepeatedScalarFieldContainer[int]
    scalars: bytes
    outputs: _containers.RepeatedScalarFieldContainer[int]
    donors: _containers.RepeatedScalarFieldContainer[int]
    views: _containers.RepeatedCompositeFieldContainer[View]
    def __init__(self, digest: _Optional[str] = ..., sweep: _Optional[_Union[Sweep, _Mapping]] = ..., space: _Optional[_Union[Space, _Mapping]] = ..., inputs: _Optional[_Iterable[int]] = ..., scalars: _Optional[bytes] = ..., outputs: _Optional[_Iterable[int]] = ..., donors: _Optional[_Iterable[int]] = ..., views: _Optional[_Iterable[_Union[View, _Mapping]]] = ...) -> None: ...

class View(_message.Message):
    __slots__ = ("input", "space", "row", "start", "step", "spread", "index")
    INPUT_FIELD_NUMBER: _ClassVar[int]
    SPACE_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    input: int
    space: Space
    row: _containers.RepeatedScalarFieldContainer[int]
    start: int
    step: int
    spread: bool
    index: int
    def __init__(self, input: _Optional[int] = ..., space: _Optional[_Union[Space, _Mapping]] = ..., row: _Optional[_Iterable[int]] = ..., start: _Optional[int] = ..., step: _Optional[int] = ..., spread: bool = ..., index: _Optional[int] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("calls", "peers", "lives", "before", "after")
    CALLS_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    LIVES_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    calls: _containers.RepeatedCompositeFieldContainer[SweepCall]
    peers: _containers.RepeatedScalarFieldContainer[str]
    lives: _containers.RepeatedScalarFieldContainer[int]
    before: _containers.RepeatedCompositeFieldContainer[MovementCall]
    after: _containers.RepeatedCompositeFieldContainer[MovementCall]
    def __init__(self, calls: _Optional[_Iterable[_Union[SweepCall, _Mapping]]] = ..., peers: _Optional[_Iterable[str]] = ..., lives: _Optional[_Iterable[int]] = ..., before: _Optional[_Iterable[_Union[MovementCall, _Mapping]]] = ..., after: _Optional[_Iterable[_Union[MovementCall, _Mapping]]] = ...) -> None: ...

class MovementCall(_message.Message):
    __slots__ = ("kind", "phase", "workspace", "inputs", "operands", "values", "outputs", "params", "whole")
    KIND_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OPERANDS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    phase: int
    workspace: int
    inputs: _containers.RepeatedCompositeFieldContainer[Array]
    operands: _containers.RepeatedCompositeFieldContainer[ValueType]
    values: bytes
    outputs: _containers.RepeatedCompositeFieldContainer[Output]
    params: _containers.RepeatedScalarFieldContainer[int]
    whole: bool
    def __init__(self, kind: _Optional[str] = ..., phase: _Optional[int] = ..., workspace: _Optional[int] = ..., inputs: _Optional[_Iterable[_Union[Array, _Mapping]]] = ..., operands: _Optional[_Iterable[_Union[ValueType, _Mapping]]] = ..., values: _Optional[bytes] = ..., outputs: _Optional[_Iterable[_Union[Output, _Mapping]]] = ..., params: _Optional[_Iterable[int]] = ..., whole: bool = ...) -> None: ...

class Output(_message.Message):
    __slots__ = ("number", "array", "kept")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    number: int
    array: Array
    kept: ValueType
    def __init__(self, number: _Optional[int] = ..., array: _Optional[_Union[Array, _Mapping]] = ..., kept: _Optional[_Union[ValueType, _Mapping]] = ...) -> None: ...

class Fetch(_message.Message):
    __slots__ = ("pieces", "shelves")
    PIECES_FIELD_NUMBER: _ClassVar[int]
    SHELVES_FIELD_NUMBER: _ClassVar[int]
    pieces: _containers.RepeatedCompositeFieldContainer[Pieces]
    shelves: _containers.RepeatedCompositeFieldContainer[Shelf]
    def __init__(self, pieces: _Optional[_Iterable[_Union[Pieces, _Mapping]]] = ..., shelves: _Optional[_Iterable[_Union[Shelf, _Mapping]]] = ...) -> None: ...

class Shelf(_message.Message):
    __slots__ = ("workspace", "name", "start", "count")
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    workspace: int
    name: str
    start: int
    count: int
    def __init__(self, workspace: _Optional[int] = ..., name: _Optional[str] = ..., start: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class Pieces(_message.Message):
    __slots__ = ("array", "start", "step", "count", "width")
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    array: Array
    start: int
    step: int
    count: int
    width: int
    def __init__(self, array: _Optional[_Union[Array, _Mapping]] = ..., start: _Optional[int] = ..., step: _Optional[int] = ..., count: _Optional[int] = ..., width: _Optional[int] = ...) -> None: ...

class Rows(_message.Message):
    __slots__ = ("array", "indices", "first", "count")
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    INDICES_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    array: Array
    indices: int
    first: int
    count: int
    def __init__(self, array: _Optional[_Union[Array, _Mapping]] = ..., indices: _Optional[int] = ..., first: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class Read(_message.Message):
    __slots__ = ("rows", "shared")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    rows: Rows
    shared: bool
    def __init__(self, rows: _Optional[_Union[Rows, _Mapping]] = ..., shared: bool = ...) -> None: ...

class Write(_message.Message):
    __slots__ = ("rows", "target", "donate", "round")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    DONATE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    rows: Rows
    target: int
    donate: bool
    round: str
    def __init__(self, rows: _Optional[_Union[Rows, _Mapping]] = ..., target: _Optional[int] = ..., donate: bool = ..., round: _Optional[str] = ...) -> None: ...

class Copy(_message.Message):
    __slots__ = ("arrays", "targets", "share", "last")
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    arrays: _containers.RepeatedCompositeFieldContainer[Array]
    targets: _containers.RepeatedScalarFieldContainer[int]
    share: bool
    last: bool
    def __init__(self, arrays: _Optional[_Iterable[_Union[Array, _Mapping]]] = ..., targets: _Optional[_Iterable[int]] = ..., share: bool = ..., last: bool = ...) -> None: ...

class Compress(_message.Message):
    __slots__ = ("array", "mask", "chosen", "target", "single", "values")
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    SINGLE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    array: Array
    mask: int
    chosen: Space
    target: int
    single: bool
    values: int
    def __init__(self, array: _Optional[_Union[Array, _Mapping]] = ..., mask: _Optional[int] = ..., chosen: _Optional[_Union[Space, _Mapping]] = ..., target: _Optional[int] = ..., single: bool = ..., values: _Optional[int] = ...) -> None: ...

class Pin(_message.Message):
    __slots__ = ("name", "spaces", "over")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPACES_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    name: str
    spaces: _containers.RepeatedCompositeFieldContainer[PinKeys]
    over: bool
    def __init__(self, name: _Optional[str] = ..., spaces: _Optional[_Iterable[_Union[PinKeys, _Mapping]]] = ..., over: bool = ...) -> None: ...

class PinKeys(_message.Message):
    __slots__ = ("space", "known", "waiting")
    SPACE_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    space: int
    known: int
    waiting: int
    def __init__(self, space: _Optional[int] = ..., known: _Optional[int] = ..., waiting: _Optional[int] = ...) -> None: ...

class Pinned(_message.Message):
    __slots__ = ("arrays", "spaces")
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    SPACES_FIELD_NUMBER: _ClassVar[int]
    arrays: _containers.RepeatedCompositeFieldContainer[Array]
    spaces: _containers.RepeatedCompositeFieldContainer[PinnedKeys]
    def __init__(self, arrays: _Optional[_Iterable[_Union[Array, _Mapping]]] = ..., spaces: _Optional[_Iterable[_Union[PinnedKeys, _Mapping]]] = ...) -> None: ...

class PinnedKeys(_message.Message):
    __slots__ = ("space", "state", "mark", "waiting", "arrays")
    SPACE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    space: int
    state: KeyedState
    mark: int
    waiting: int
    arrays: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, space: _Optional[int] = ..., state: _Optional[_Union[KeyedState, _Mapping]] = ..., mark: _Optional[int] = ..., waiting: _Optional[int] = ..., arrays: _Optional[_Iterable[int]] = ...) -> None: ...

class Save(_message.Message):
    __slots__ = ("store", "file", "arrays", "names", "pin", "offsets", "head", "spares")
    STORE_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    SPARES_FIELD_NUMBER: _ClassVar[int]
    store: str
    file: str
    arrays: _containers.RepeatedCompositeFieldContainer[Array]
    names: _containers.RepeatedScalarFieldContainer[str]
    pin: str
    offsets: _containers.RepeatedScalarFieldContainer[int]
    head: bytes
    spares: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, store: _Optional[str] = ..., file: _Optional[str] = ..., arrays: _Optional[_Iterable[_Union[Array, _Mapping]]] = ..., names: _Optional[_Iterable[str]] = ..., pin: _Optional[str] = ..., offsets: _Optional[_Iterable[int]] = ..., head: _Optional[bytes] = ..., spares: _Optional[_Iterable[str]] = ...) -> None: ...

class Load(_message.Message):
    __slots__ = ("arrays",)
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    arrays: _containers.RepeatedCompositeFieldContainer[Saved]
    def __init__(self, arrays: _Optional[_Iterable[_Union[Saved, _Mapping]]] = ...) -> None: ...

class Saved(_message.Message):
    __slots__ = ("array", "store", "pieces")
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    array: Array
    store: str
    pieces: _containers.RepeatedCompositeFieldContainer[Piece]
    def __init__(self, array: _Optional[_Union[Array, _Mapping]] = ..., store: _Optional[str] = ..., pieces: _Optional[_Iterable[_Union[Piece, _Mapping]]] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("file", "offset", "low", "high", "unit", "crcs")
    FILE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    CRCS_FIELD_NUMBER: _ClassVar[int]
    file: str
    offset: int
    low: int
    high: int
    unit: int
    crcs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, file: _Optional[str] = ..., offset: _Optional[int] = ..., low: _Optional[int] = ..., high: _Optional[int] = ..., unit: _Optional[int] = ..., crcs: _Optional[_Iterable[int]] = ...) -> None: ...

class Barrier(_message.Message):
    __slots__ = ("kind", "name")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class Join(_message.Message):
    __slots__ = ("barrier", "ranks", "staleness", "member", "attempt", "at", "exclude")
    BARRIER_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    barrier: Barrier
    ranks: int
    staleness: int
    member: int
    attempt: int
    at: int
    exclude: bool
    def __init__(self, barrier: _Optional[_Union[Barrier, _Mapping]] = ..., ranks: _Optional[int] = ..., staleness: _Optional[int] = ..., member: _Optional[int] = ..., attempt: _Optional[int] = ..., at: _Optional[int] = ..., exclude: bool = ...) -> None: ...

class Contribute(_message.Message):
    __slots__ = ("barrier", "member", "attempt", "turn", "slot", "number", "rows", "call", "value", "leave")
    BARRIER_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    barrier: Barrier
    member: int
    attempt: int
    turn: int
    slot: int
    number: int
    rows: _containers.RepeatedCompositeFieldContainer[Rows]
    call: RowCall
    value: bytes
    leave: bool
    def __init__(self, barrier: _Optional[_Union[Barrier, _Mapping]] = ..., member: _Optional[int] = ..., attempt: _Optional[int] = ..., turn: _Optional[int] = ..., slot: _Optional[int] = ..., number: _Optional[int] = ..., rows: _Optional[_Iterable[_Union[Rows, _Mapping]]] = ..., call: _Optional[_Union[RowCall, _Mapping]] = ..., value: _Optional[bytes] = ..., leave: bool = ...) -> None: ...

class Wait(_message.Message):
    __slots__ = ("barrier", "member", "attempt", "turn", "seconds", "rows", "ask")
    BARRIER_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    barrier: Barrier
    member: int
    attempt: int
    turn: int
    seconds: float
    rows: Rows
    ask: Ask
    def __init__(self, barrier: _Optional[_Union[Barrier, _Mapping]] = ..., member: _Optional[int] = ..., attempt: _Optional[int] = ..., turn: _Optional[int] = ..., seconds: _Optional[float] = ..., rows: _Optional[_Union[Rows, _Mapping]] = ..., ask: _Optional[_Union[Ask, _Mapping]] = ...) -> None: ...

class Ask(_message.Message):
    __slots__ = ("value", "about", "count", "target")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    ABOUT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    about: Array
    count: int
    target: Array
    def __init__(self, value: _Optional[bytes] = ..., about: _Optional[_Union[Array, _Mapping]] = ..., count: _Optional[int] = ..., target: _Optional[_Union[Array, _Mapping]] = ...) -> None: ...

class Asked(_message.Message):
    __slots__ = ("question", "value", "answers")
    class AnswersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: bytes
        def __init__(self, key: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    question: int
    value: bytes
    answers: _containers.ScalarMap[int, bytes]
    def __init__(self, question: _Optional[int] = ..., value: _Optional[bytes] = ..., answers: _Optional[_Mapping[int, bytes]] = ...) -> None: ...

class Clocks(_message.Message):
    __slots__ = ("clocks", "out")
    CLOCKS_FIELD_NUMBER: _ClassVar[int]
    OUT_FIELD_NUMBER: _ClassVar[int]
    clocks: _containers.RepeatedScalarFieldContainer[int]
    out: bool
    def __init__(self, clocks: _Optional[_Iterable[int]] = ..., out: bool = ...) -> None: ...

class Winner(_message.Message):
    __slots__ = ("partition", "attempt", "contributions")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTIONS_FIELD_NUMBER: _ClassVar[int]
    partition: int
    attempt: int
    contributions: int
    def __init__(self, partition: _Optional[int] = ..., attempt: _Optional[int] = ..., contributions: _Optional[int] = ...) -> None: ...

class Total(_message.Message):
    __slots__ = ("target", "source", "slot", "op", "winners")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    WINNERS_FIELD_NUMBER: _ClassVar[int]
    target: Array
    source: int
    slot: int
    op: str
    winners: _containers.RepeatedCompositeFieldContainer[Winner]
    def __init__(self, target: _Optional[_Union[Array, _Mapping]] = ..., source: _Optional[int] = ..., slot: _Optional[int] = ..., op: _Optional[str] = ..., winners: _Optional[_Iterable[_Union[Winner, _Mapping]]] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("round", "totals", "step")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    round: str
    totals: _containers.RepeatedCompositeFieldContainer[Total]
    step: int
    def __init__(self, round: _Optional[str] = ..., totals: _Optional[_Iterable[_Union[Total, _Mapping]]] = ..., step: _Optional[int] = ...) -> None: ...

class End(_message.Message):
    __slots__ = ("barrier",)
    BARRIER_FIELD_NUMBER: _ClassVar[int]
    barrier: Barrier
    def __init__(self, barrier: _Optional[_Union[Barrier, _Mapping]] = ...) -> None: ...

class MakeKeys(_message.Message):
    __slots__ = ("space", "most_bytes", "admit", "sketch", "length")
    SPACE_FIELD_NUMBER: _ClassVar[int]
    MOST_BYTES_FIELD_NUMBER: _ClassVar[int]
    ADMIT_FIELD_NUMBER: _ClassVar[int]
    SKETCH_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    space: int
    most_bytes: int
    admit: int
    sketch: int
    length: int
    def __init__(self, space: _Optional[int] = ..., most_bytes: _Optional[int] = ..., admit: _Optional[int] = ..., sketch: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class MakeRows(_message.Message):
    __slots__ = ("space", "array", "type", "fill", "params", "seed")
    SPACE_FIELD_NUMBER: _ClassVar[int]
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    FILL_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    space: int
    array: int
    type: ValueType
    fill: str
    params: _containers.RepeatedScalarFieldContainer[float]
    seed: int
    def __init__(self, space: _Optional[int] = ..., array: _Optional[int] = ..., type: _Optional[_Union[ValueType, _Mapping]] = ..., fill: _Optional[str] = ..., params: _Optional[_Iterable[float]] = ..., seed: _Optional[int] = ...) -> None: ...

class Keys(_message.Message):
    __slots__ = ("space", "count", "bytes", "view")
    SPACE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    space: int
    count: int
    bytes: int
    view: int
    def __init__(self, space: _Optional[int] = ..., count: _Optional[int] = ..., bytes: _Optional[int] = ..., view: _Optional[int] = ...) -> None: ...

class RowCall(_message.Message):
    __slots__ = ("keys", "arrays", "digest", "sweep", "scalars", "gathers", "scatters", "returns", "with_keys", "find", "given_as", "returns_as", "spaces", "own")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SWEEP_FIELD_NUMBER: _ClassVar[int]
    SCALARS_FIELD_NUMBER: _ClassVar[int]
    GATHERS_FIELD_NUMBER: _ClassVar[int]
    SCATTERS_FIELD_NUMBER: _ClassVar[int]
    RETURNS_FIELD_NUMBER: _ClassVar[int]
    WITH_KEYS_FIELD_NUMBER: _ClassVar[int]
    FIND_FIELD_NUMBER: _ClassVar[int]
    GIVEN_AS_FIELD_NUMBER: _ClassVar[int]
    RETURNS_AS_FIELD_NUMBER: _ClassVar[int]
    SPACES_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    keys: Keys
    arrays: _containers.RepeatedScalarFieldContainer[int]
    digest: str
    sweep: Sweep
    scalars: bytes
    gathers: _containers.RepeatedScalarFieldContainer[int]
    scatters: _containers.RepeatedCompositeFieldContainer[Scatter]
    returns: _containers.RepeatedScalarFieldContainer[int]
    with_keys: bool
    find: bool
    given_as: str
    returns_as: str
    spaces: _containers.RepeatedScalarFieldContainer[int]
    own: OwnFunction
    def __init__(self, keys: _Optional[_Union[Keys, _Mapping]] = ..., arrays: _Optional[_Iterable[int]] = ..., digest: _Optional[str] = ..., sweep: _Optional[_Union[Sweep, _Mapping]] = ..., scalars: _Optional[bytes] = ..., gathers: _Optional[_Iterable[int]] = ..., scatters: _Optional[_Iterable[_Union[Scatter, _Mapping]]] = ..., returns: _Optional[_Iterable[int]] = ..., with_keys: bool = ..., find: bool = ..., given_as: _Optional[str] = ..., returns_as: _Optional[str] = ..., spaces: _Optional[_Iterable[int]] = ..., own: _Optional[_Union[OwnFunction, _Mapping]] = ...) -> None: ...

class OwnFunction(_message.Message):
    __slots__ = ("signature", "plugin")
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    signature: str
    plugin: str
    def __init__(self, signature: _Optional[str] = ..., plugin: _Optional[str] = ...) -> None: ...

class Scatter(_message.Message):
    __slots__ = ("output", "array", "op", "where")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    output: int
    array: int
    op: str
    where: int
    def __init__(self, output: _Optional[int] = ..., array: _Optional[int] = ..., op: _Optional[str] = ..., where: _Optional[int] = ...) -> None: ...

class RemoveKeys(_message.Message):
    __slots__ = ("keys", "mask", "version")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    keys: Keys
    mask: Array
    version: int
    def __init__(self, keys: _Optional[_Union[Keys, _Mapping]] = ..., mask: _Optional[_Union[Array, _Mapping]] = ..., version: _Optional[int] = ...) -> None: ...

class KeyedState(_message.Message):
    __slots__ = ("keys", "version", "bytes", "evicted", "refused", "waiting")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    EVICTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    keys: int
    version: int
    bytes: int
    evicted: int
    refused: int
    waiting: int
    def __init__(self, keys: _Optional[int] = ..., version: _Optional[int] = ..., bytes: _Optional[int] = ..., evicted: _Optional[int] = ..., refused: _Optional[int] = ..., waiting: _Optional[int] = ...) -> None: ...

class ReadKeys(_message.Message):
    __slots__ = ("space", "version", "first", "count")
    SPACE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    space: int
    version: int
    first: int
    count: int
    def __init__(self, space: _Optional[int] = ..., version: _Optional[int] = ..., first: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class CopyRows(_message.Message):
    __slots__ = ("space", "version", "rows", "buffers", "thaw")
    SPACE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    THAW_FIELD_NUMBER: _ClassVar[int]
    space: int
    version: int
    rows: _containers.RepeatedScalarFieldContainer[int]
    buffers: _containers.RepeatedCompositeFieldContainer[Array]
    thaw: bool
    def __init__(self, space: _Optional[int] = ..., version: _Optional[int] = ..., rows: _Optional[_Iterable[int]] = ..., buffers: _Optional[_Iterable[_Union[Array, _Mapping]]] = ..., thaw: bool = ...) -> None: ...

class RestoreKeys(_message.Message):
    __slots__ = ("space", "arrays", "keys", "rows", "waiting", "state")
    SPACE_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    space: MakeKeys
    arrays: _containers.RepeatedCompositeFieldContainer[MakeRows]
    keys: Saved
    rows: _containers.RepeatedCompositeFieldContainer[Saved]
    waiting: Saved
    state: KeyedState
    def __init__(self, space: _Optional[_Union[MakeKeys, _Mapping]] = ..., arrays: _Optional[_Iterable[_Union[MakeRows, _Mapping]]] = ..., keys: _Optional[_Union[Saved, _Mapping]] = ..., rows: _Optional[_Iterable[_Union[Saved, _Mapping]]] = ..., waiting: _Optional[_Union[Saved, _Mapping]] = ..., state: _Optional[_Union[KeyedState, _Mapping]] = ...) -> None: ...
