// Package daemon is the program tensorcached: a cache in a process of its own, and the ways to reach it.
//
// [Load] reads flags and a configuration file into a [Config]. [Config.Check] says what the program would take, without taking it. [Run] opens the
// cache, listens, keeps snapshots, and ends on a signal:
//
//	SIGTERM, SIGINT   no new work is taken; work under way ends, for at most Config.DrainTimeout; a snapshot is written; exit status 0.
//	                  A second one ends the program at once, with status 1.
//	SIGHUP            the flags' file is read again. What can change while the cache is open does, and the log says what cannot.
//
// Run tells systemd of its states, if systemd has started it, and feeds its watchdog.
package daemon
