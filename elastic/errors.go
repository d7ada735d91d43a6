package elastic

// Code names why the service refused something. It is the code of an ErrorReply.
type Code string

const (
	Malformed        Code = "malformed"
	Unauthorized     Code = "unauthorized"
	NoSuchJob        Code = "no_such_job"
	NoSuchSlot       Code = "no_such_slot"
	NoSuchPath       Code = "no_such_path"
	MethodNotAllowed Code = "method_not_allowed"
	RegisterFirst    Code = "register_first"
	Fenced           Code = "fenced"
	TooLarge         Code = "too_large"
	NotReady         Code = "not_ready"
)

// Error is a refusal. Rendezvous and Coordinator return it, Server sends it, Client returns it again, so
// errors.Is(err, ErrFenced) means the same on both sides of the wire.
type Error struct {
	Code    Code
	Message string
}

func (e *Error) Error() string {
	if e.Message == "" {
		return string(e.Code)
	}
	return e.Message
}

// Is matches the errors below by their code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Message == "" && t.Code == e.Code
}

// What a caller of Client has to tell apart, and what it is to do about it.
var (
	// ErrUnauthorized: the token is not the job's, or the job is not known. Read the token's file again.
	ErrUnauthorized = &Error{Code: Unauthorized}
	// ErrNoSuchJob: the job has another UID. It is not the one that the member belongs to: end.
	ErrNoSuchJob = &Error{Code: NoSuchJob}
	// ErrNoSuchSlot: the slot is no longer wanted: end.
	ErrNoSuchSlot = &Error{Code: NoSuchSlot}
	// ErrRegisterFirst: this master does not know the member yet, or its lease ran out: register again.
	ErrRegisterFirst = &Error{Code: RegisterFirst}
	// ErrFenced: a newer incarnation has the slot, or this one is considered ended: stop and end.
	ErrFenced = &Error{Code: Fenced}
	// ErrNotReady: the master does not know yet what is wanted: try again soon.
	ErrNotReady = &Error{Code: NotReady}
)
