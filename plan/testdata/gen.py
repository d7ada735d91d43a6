# turns a terse script into datadriven files: commands separated by lines; input lines are indented
import sys,re
for f in sys.argv[1:]:
    out=[];cur=None
    for line in open(f):
        line=line.rstrip('\n')
        if line.startswith('#') or not line.strip():
            if cur: out.append(cur+'\n----\n'); cur=None
            out.append(line+'\n' if line else '\n'); continue
        if line.startswith('  '):
            cur+='\n'+line.strip(); continue
        if cur: out.append(cur+'\n----\n\n')
        cur=line
    if cur: out.append(cur+'\n----\n')
    open(f.replace('.in','.txt'),'w').write(''.join(out))
