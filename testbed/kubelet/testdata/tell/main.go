// Tell prints what a container of a scratch image finds, and what it may write.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"unsafe"
)

func main() {
	if slices.Contains(os.Args, "wait") {
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		<-end
		os.Exit(3)
	}
	var names []string
	entries, err := os.ReadDir("/")
	for _, e := range entries {
		names = append(names, e.Name())
	}
	fmt.Println(strings.Join(names, " "), err)
	host, err := os.Hostname()
	fmt.Println(os.Getpid(), os.Getuid(), host, os.Getenv("GREETING"), os.Args[1:], err)
	for _, path := range []string{"/new", "/etc/new", "/usr/new", "/volume/new"} {
		err := os.WriteFile(path, nil, 0o644)
		fmt.Println(path, err == nil, errors.Is(err, syscall.EROFS))
	}
	hosts, err := os.ReadFile("/etc/hosts")
	fmt.Println(strings.Contains(string(hosts), host), err)
	const getDeathSignal = 2 // PR_GET_PDEATHSIG
	var signal int32
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, getDeathSignal, uintptr(unsafe.Pointer(&signal)), 0)
	fmt.Println(syscall.Signal(signal), errno)
	self, err := os.Readlink("/proc/self/exe")
	fmt.Println(self, err)
}
