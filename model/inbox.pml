/* The inbox: one event that is delivered at least once, two consumers of one group. The claim: its effect happens once.
 *
 *   MODE 0  the row that says "seen" and the effect are one database transaction (unique index): holds
 *   MODE 1  remote store, marked before the handler runs (SETNX, then work): loses the effect in a crash
 *   MODE 2  remote store, marked after the handler ran (look, work, SET): repeats it
 *   MODE 3  remote store, a lease while the handler runs, then DONE: repeats it after a crash or a lapse
 *   MODE 4  as 3, and the database refuses the effect a second time: holds, also with EVICT
 *
 *   EVICT   the remote store may forget
 */
#ifndef MODE
#define MODE 0
#endif
#ifndef CRASH
#define CRASH 2
#endif
#ifndef EXPIRE
#define EXPIRE 1
#endif
#ifndef DUP
#define DUP 1           /* extra deliveries by the producer side */
#endif
byte inflight;          /* copies in the broker not yet acked    */
byte effects;           /* committed side effects                */
bit  row;               /* MODE 0: committed dedup row           */
byte rs;                /* remote store: 0 none 1 IN_PROGRESS 2 DONE */
byte rtok;              /* fencing number of the store           */
bit  dbdone;            /* MODE 4: the database knows that it was done */
byte rowlock = 255;     /* MODE 0: open transaction holding the unique key */
byte s[2]; byte tok[2];
byte b_crash=CRASH, b_exp=EXPIRE, b_dup=DUP;

#define IDLE 0
#define GOT  1
#define WORK 2
#define EFF  3   /* effect committed, ack outstanding */
#define ACK  4

active proctype sys() {
  byte n;
  inflight = 1;
  do
  :: atomic { b_dup>0 -> b_dup--; inflight++ }
  :: atomic { (inflight>0 && (s[0]==IDLE || s[1]==IDLE)) ->
       if :: s[0]==IDLE -> n=0 :: s[1]==IDLE -> n=1 fi;
       inflight--; s[n]=GOT }
  :: atomic { (s[0]==GOT || s[1]==GOT) ->
       if :: s[0]==GOT -> n=0 :: s[1]==GOT -> n=1 fi;
       if
       :: MODE==0 -> if
            :: row -> s[n]=ACK                       /* duplicate key        */
            :: !row && rowlock==255 -> rowlock=n; s[n]=WORK
            :: else -> skip                          /* waits on the index   */
            fi
       :: MODE==1 -> if :: rs==0 -> rs=2; s[n]=WORK :: else -> s[n]=ACK fi
       :: MODE==2 -> if :: rs==0 -> s[n]=WORK :: else -> s[n]=ACK fi
       :: MODE==3 || MODE==4 -> if
            :: rs==0 -> rs=1; rtok++; tok[n]=rtok; s[n]=WORK
            :: rs==1 -> s[n]=IDLE; inflight++        /* busy: nack, redeliver */
            :: rs==2 -> s[n]=ACK
            fi
       fi }
  :: atomic { (s[0]==WORK || s[1]==WORK) ->
       if :: s[0]==WORK -> n=0 :: s[1]==WORK -> n=1 fi;
       if
       :: MODE==0 -> row=1; rowlock=255; effects++; s[n]=EFF
       :: MODE==4 -> if :: !dbdone -> dbdone=1; effects++; s[n]=EFF :: else -> s[n]=EFF fi
       :: MODE==1 || MODE==2 || MODE==3 -> effects++; s[n]=EFF
       fi;
       assert(effects<=1) }
  :: atomic { (s[0]==EFF || s[1]==EFF) ->
       if :: s[0]==EFF -> n=0 :: s[1]==EFF -> n=1 fi;
       if :: MODE==2 || MODE==3 || MODE==4 -> rs=2 :: else fi;
       s[n]=ACK }
  :: atomic { (s[0]==ACK || s[1]==ACK) ->
       if :: s[0]==ACK -> n=0 :: s[1]==ACK -> n=1 fi; s[n]=IDLE; tok[n]=0 }
  /* handler fails: rollback and redeliver */
  :: atomic { b_crash>0 && (s[0]!=IDLE || s[1]!=IDLE) ->
       if :: s[0]!=IDLE -> n=0 :: s[1]!=IDLE -> n=1 fi;
       b_crash--;
       if :: rowlock==n -> rowlock=255 :: else fi;
       s[n]=IDLE; tok[n]=0; inflight++ }
  /* the IN_PROGRESS key runs out: free when its owner died, budgeted when alive */
  :: atomic { (MODE>=3 && rs==1) ->
       if
       :: (s[0]!=WORK && s[0]!=EFF && s[1]!=WORK && s[1]!=EFF) -> rs=0
       :: b_exp>0 -> b_exp--; rs=0
       :: else
       fi }
  /* eviction / failover of the remote store forgets the key */
#ifdef EVICT
  :: atomic { (MODE>=1 && rs!=0 && b_exp>0) -> b_exp--; rs=0 }
#endif
  :: atomic { (inflight==0 && s[0]==IDLE && s[1]==IDLE && b_dup==0) -> break }
  od;
  assert(effects==1)
}
